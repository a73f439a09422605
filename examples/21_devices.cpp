// Tensors on devices: operations run where their operands are.
#include "egret/device.h"
#include "egret/functional.h"
#include "egret/nn.h"
#include "egret/random.h"

#include <iostream>
#include <thread>

using namespace egret;

int main() {
  // The last two devices that this machine has, which may be one.
  const std::vector<DeviceInfo> all = devices();
  const Device one = all.back().name, other = all[all.size() > 1 ? all.size() - 2 : 0].name;

  Tensor x = tensor({1.0f, 2.0f, 3.0f}).to(one);
  Tensor y = x * 2 + arange(3, DType::F32); // what is made of numbers alone goes with x
  std::cout << y << " on " << y.device().name() << "\n";

  Tensor there = y.to(other) + 1;
  std::cout << there << " on " << there.device().name() << "\n";
  try {
    std::cout << there + y << "\n"; // one device, or an error with the names of both
  } catch (const Error& error) {
    std::cout << error.what() << "\n";
  }

  // A model moves as a whole.
  Generator random(1);
  nn::Linear layer(3, 2, random);
  nn::to(layer, one);
  std::cout << layer(x.reshape({1, 3})).device().name() << "\n";

  // A scope is its thread's.
  const auto work = [](const Device& device) {
    const DeviceScope scope(device);
    return tensor({1.0f, 2.0f}).sum().item();
  };
  double found = 0;
  std::thread beside([&] { found = work(other); });
  const double here = work(one);
  beside.join();
  std::cout << here + found << "\n";
}
