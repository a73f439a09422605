#include "egret/models.h"
#include "support/fail.h"

namespace egret::models {

namespace {

nn::Conv2d convolution(std::int64_t inputs, std::int64_t outputs, std::int64_t kernel,
                       std::int64_t stride, Generator& generator) {
  nn::Conv2d layer(inputs, outputs, kernel, generator, {.stride = stride, .padding = kernel / 2},
                   false);
  layer.weight =
      nn::init::kaiming_normal(layer.weight.shape(), generator, {.out = true}).set_requires_grad();
  return layer;
}

} // namespace

ResidualBlock::ResidualBlock(std::int64_t inputs, std::int64_t outputs, std::int64_t stride,
                             Generator& generator)
    : conv1(convolution(inputs, outputs, 3, stride, generator)),
      conv2(convolution(outputs, outputs, 3, 1, generator)), bn1(outputs), bn2(outputs) {
  if (stride != 1 || inputs != outputs)
    downsample.emplace(convolution(inputs, outputs, 1, stride, generator), nn::BatchNorm(outputs));
}

Tensor ResidualBlock::operator()(const Operand& x, Generator* generator) const {
  const Tensor y = bn2(conv2(relu(bn1(conv1(x), generator))), generator);
  return relu(y + (downsample ? (*downsample)(x, generator) : Tensor(x)));
}

ResNet::ResNet(const ResNetOptions& o, Generator& generator) {
  if (o.blocks.empty() || o.width <= 0 || o.classes <= 0)
    fail(ErrorKind::Value, "ResNet: {} layers of blocks, width {}, {} classes", o.blocks.size(),
         o.width, o.classes);
  conv1 = convolution(3, o.width, 7, 2, generator);
  bn1 = nn::BatchNorm(o.width);
  std::int64_t inputs = o.width, outputs = o.width;
  for (std::size_t i = 0; i < o.blocks.size(); ++i) {
    std::vector<ResidualBlock> layer;
    for (std::int64_t j = 0; j < o.blocks[i]; ++j) {
      layer.emplace_back(inputs, outputs, i > 0 && j == 0 ? 2 : 1, generator);
      inputs = outputs;
    }
    layers.push_back(std::move(layer));
    outputs *= 2;
  }
  fc = nn::Linear(inputs, o.classes, generator);
}

Tensor ResNet::operator()(const Operand& images, Generator* generator) const {
  Tensor x = maxpool(relu(bn1(conv1(images), generator)));
  for (const auto& layer : layers)
    for (const auto& block : layer)
      x = block(x, generator);
  return fc(adaptive_avg_pool2d(x, 1).flatten(1));
}

} // namespace egret::models
