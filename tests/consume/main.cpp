// Uses the installed library from outside: a model with its optimizer trained by a compiled step, a
// checkpoint saved and loaded, and an error of the library's own type caught across the border.
#include <egret/egret.h>
#include <egret/graph.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

namespace {

struct Training {
  egret::Generator generator{3};
  egret::nn::Mlp model{{4, 16, 1}, generator};
  egret::optim::AdamW optimizer{egret::nn::named_parameters(model), {.lr = 0.02}};
  EGRET_FIELDS(generator, model, optimizer)
};

egret::Tensor train_step(Training& t, const egret::Tensor& x, const egret::Tensor& y) {
  egret::Tensor loss = egret::mse_loss(t.model(x), y);
  t.optimizer.zero_grad();
  loss.backward();
  t.optimizer.step();
  return loss;
}

int failed(const char* what) {
  std::fprintf(stderr, "consume: %s\n", what);
  return 1;
}

int run(const std::filesystem::path& file) {
  egret::Generator data(7);
  const egret::Tensor x = egret::randn({32, 4}, data), y = x.square().sum(-1, true);
  Training training;
  auto step = egret::compile(&train_step);
  const double first = step(training, x, y).item();
  for (int i = 0; i < 50; ++i)
    step(training, x, y);
  egret::save_checkpoint(file, training, {{"steps", "51"}});
  const double next = step(training, x, y).item();
  if (!(std::isfinite(first) && next < first))
    return failed("the loss did not fall");

  Training again; // continues with the same bits
  const egret::io::Metadata metadata = egret::load_checkpoint(file, again);
  if (metadata.at("steps") != "51" || step(again, x, y).item() != next)
    return failed("the loaded checkpoint does not continue the training");

  egret::Graph graph; // the explicit interface
  auto a = graph.tensor({2}).set({1, 2});
  auto b = (a * 2.0).retrieve();
  graph.compile(egret::Generic{} | egret::Fusion{}, &b);
  graph.execute();
  if (b.data() != std::vector<float>{2, 4})
    return failed("the graph is wrong");

  try {
    egret::ones({2, 3}).reshape({7}).eval();
    return failed("a shape that cannot be was taken");
  } catch (const egret::Error& error) {
    return error.kind() == egret::ErrorKind::Shape ? 0 : failed(error.what());
  }
}

} // namespace

int main(int argc, char** argv) {
  return argc == 2 ? run(std::filesystem::path(argv[1]) / "checkpoint.safetensors")
                   : failed("give a folder");
}
