// viewer_graphs FOLDER: graphs of models as text, for the viewer's tests in a browser
// (viewer/test/).
#include "egret/egret.h"
#include "support/files.h"
#include "support/llama_graph.h"

#include <cstdio>
#include <filesystem>

using namespace egret;

namespace {

std::string attention_text() {
  Graph cx;
  const Tensor q = cx.tensor({2, 64, 16}, DType::F32, "q"),
               k = cx.tensor({2, 64, 16}, DType::F32, "k"),
               v = cx.tensor({2, 64, 16}, DType::F32, "v");
  const Tensor seen = arange(64).reshape({64, 1}) >= arange(64);
  const Tensor scores = where(seen, matmul(q, k.transpose()) * 0.25, -1e30);
  Tensor y = matmul(softmax(scores, -1), v);
  y.retrieve();
  return cx.text();
}

/// With the blocks of ResNet-34, on small images.
std::string resnet_text() {
  Generator random(1);
  const models::ResNet model({.classes = 10, .width = 16, .blocks = {3, 4, 6, 3}}, random);
  auto logits =
      compile([&](const Tensor& images) { return model(images); }, {.effort = Effort::None});
  logits(ones({1, 3, 32, 32}));
  return logits.graph_text();
}

} // namespace

int main(int count, char** arguments) {
  if (count != 2) {
    std::fputs("usage: viewer_graphs FOLDER\n", stderr);
    return 2;
  }
  const std::filesystem::path folder = arguments[1];
  test::write_file(folder / "llama.txt", ir::print(egret::testing::llama_graph({.layers = 32})));
  test::write_file(folder / "attention.txt", attention_text());
  test::write_file(folder / "resnet.txt", resnet_text());
}
