// A module of one's own: a struct whose fields are named by EGRET_FIELDS. Names, optimizers,
// checkpoints and compile() then work.
#include <egret/egret.h>

#include <iostream>

using namespace egret;

namespace {

/// x + down(silu(gate(norm(x))) * up(norm(x))): the feed-forward part of many language models.
struct GatedBlock {
  nn::RmsNorm norm;
  nn::Linear gate, up, down;

  GatedBlock(std::int64_t width, std::int64_t hidden, Generator& random)
      : norm(width), gate(width, hidden, random, false), up(width, hidden, random, false),
        down(hidden, width, random, false) {}

  Tensor operator()(const Tensor& x) const {
    Tensor y = norm(x);
    return x + down(silu(gate(y)) * up(y));
  }
  EGRET_FIELDS(norm, gate, up, down)
};

struct Model {
  std::vector<GatedBlock> blocks;
  nn::Linear head;

  Tensor operator()(Tensor x) const {
    for (const auto& block : blocks)
      x = block(x);
    return head(x);
  }
  EGRET_FIELDS(blocks, head)
};

} // namespace

int main() {
  Generator random(3);
  Model model{{GatedBlock(8, 16, random), GatedBlock(8, 16, random)}, nn::Linear(8, 1, random)};
  for (const auto& [name, tensor] : nn::named_parameters(model))
    std::cout << name << " " << to_string(tensor.shape()) << "\n";

  // It learns the largest of eight numbers.
  optim::AdamW optimizer(nn::named_parameters(model), {.lr = 3e-3});
  auto step = compile([](Model& net, optim::AdamW& opt, Generator& numbers) {
    Tensor x = rand({64, 8}, numbers);
    Tensor loss = mse_loss(net(x), x.max(-1, true));
    opt.zero_grad();
    loss.backward();
    opt.step();
    return loss;
  });
  const double first = step(model, optimizer, random).item();
  double last = first;
  for (int i = 0; i < 400; ++i)
    last = step(model, optimizer, random).item();
  std::cout << "loss " << first << " -> " << last << "\n";
  return last < 0.1 * first ? 0 : 1;
}
