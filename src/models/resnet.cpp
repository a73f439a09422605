#include "egret/models.h"
#include "egret/range.h"
#include "support/fail.h"

#include <algorithm>

namespace egret::models {

namespace {

nn::Conv2d convolution(std::int64_t inputs, std::int64_t outputs, std::int64_t kernel,
                       std::int64_t stride, Generator& generator, std::int64_t groups = 1) {
  nn::Conv2d layer(inputs, outputs, kernel, generator,
                   {.stride = stride, .padding = kernel / 2, .groups = groups}, false);
  layer.weight =
      nn::init::kaiming_normal(layer.weight.shape(), generator, {.out = true}).set_requires_grad();
  return layer;
}

} // namespace

ResidualBlock::ResidualBlock(std::int64_t inputs, std::int64_t width, std::int64_t stride,
                             Generator& generator, const ResNetOptions& o) {
  const std::int64_t outputs = o.bottleneck ? 4 * width : width;
  if (o.bottleneck) {
    const std::int64_t inner = width * o.group_width / 64 * o.groups;
    conv1 = convolution(inputs, inner, 1, 1, generator);
    conv2 = convolution(inner, inner, 3, stride, generator, o.groups);
    conv3 = convolution(inner, outputs, 1, 1, generator);
    bn1 = nn::BatchNorm(inner);
    bn2 = nn::BatchNorm(inner);
    bn3 = nn::BatchNorm(outputs);
  } else {
    conv1 = convolution(inputs, outputs, 3, stride, generator);
    conv2 = convolution(outputs, outputs, 3, 1, generator);
    bn1 = nn::BatchNorm(outputs);
    bn2 = nn::BatchNorm(outputs);
  }
  if (stride != 1 || inputs != outputs)
    downsample.emplace(convolution(inputs, outputs, 1, stride, generator), nn::BatchNorm(outputs));
}

Tensor ResidualBlock::operator()(const Operand& x, Generator* generator) const {
  Tensor y = bn2(conv2(relu(bn1(conv1(x), generator))), generator);
  if (conv3)
    y = (*bn3)((*conv3)(relu(y)), generator);
  return relu(y + (downsample ? (*downsample)(x, generator) : Tensor(x)));
}

ResNet::ResNet(const ResNetOptions& o, Generator& generator) {
  const bool positive = o.width > 0 && o.classes > 0 && o.stem >= 0 && o.groups > 0 &&
                        o.group_width > 0 &&
                        std::ranges::all_of(o.widths, [](std::int64_t w) { return w > 0; });
  if (o.blocks.empty() || !positive || (!o.widths.empty() && o.widths.size() != o.blocks.size()))
    fail(ErrorKind::Value,
         "ResNet: {} layers of blocks, width {}, {} widths, stem {}, {} groups of {}, {} classes",
         o.blocks.size(), o.width, o.widths.size(), o.stem, o.groups, o.group_width, o.classes);
  std::int64_t inputs = o.stem > 0 ? o.stem : o.width, width = o.width;
  conv1 = convolution(3, inputs, 7, 2, generator);
  bn1 = nn::BatchNorm(inputs);
  for (std::size_t i = 0; i < o.blocks.size(); ++i, width *= 2) {
    const std::int64_t its = o.widths.empty() ? width : o.widths[i];
    std::vector<ResidualBlock> layer;
    for (std::int64_t j = 0; j < o.blocks[i]; ++j) {
      layer.emplace_back(inputs, its, i > 0 && j == 0 ? 2 : 1, generator, o);
      inputs = o.bottleneck ? 4 * its : its;
    }
    layers.push_back(std::move(layer));
  }
  fc = nn::Linear(inputs, o.classes, generator);
}

Tensor ResNet::features(const Operand& images, Generator* generator) const {
  Tensor x = maxpool(relu(bn1(conv1(images), generator)));
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const Range range(fmt::format("layer {}", i));
    for (std::size_t j = 0; j < layers[i].size(); ++j) {
      const Range within(fmt::format("block {}", j));
      x = layers[i][j](x, generator);
    }
  }
  return adaptive_avg_pool2d(x, 1).flatten(1);
}

Tensor ResNet::operator()(const Operand& images, Generator* generator) const {
  return fc(features(images, generator));
}

} // namespace egret::models
