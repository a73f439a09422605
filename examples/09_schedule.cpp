// A schedule written by hand: loops over two axes, over all cores, with vectors of 8
// (docs/loops.md).
//
//   equal values with the schedule
//     loops @tree=for(0,6,512,core,for(0,64,8,serial,for(0,8,1,vector,body(0))))
//   schedule of map_mul: loops @tree=for(0,64,1,serial,body(0)): the loops along axis 0 of 3072 do
//   not make each point of stage 0 once
#include "egret/compile.h"
#include "egret/functional.h"

#include <iostream>

using namespace egret;

namespace {

Tensor damped(const Tensor& x) {
  return exp(x) * 0.5;
}

} // namespace

int main() {
  const Tensor x = (arange(64 * 48).reshape({64, 48}).to(DType::F32) * 1e-3).eval();

  // The kernel is called after what it computes last. Its 3072 points are 6 times 512, the 512 for
  // a core each time, in 64 vectors of 8.
  const std::string loops =
      "loops @tree=for(0,6,512,core,for(0,64,8,serial,for(0,8,1,vector,body(0))))";
  auto by_hand = compile(&damped, {.schedules = {{"map_mul", loops}}});
  const bool equal = allclose(by_hand(x), damped(x), 1e-6, 0).item<bool>();
  std::cout << (equal ? "equal values with the schedule\n  " : "other values with the schedule\n  ")
            << loops << "\n";

  // A schedule that leaves points out is refused, with the reason.
  auto wrong =
      compile(&damped, {.schedules = {{"map_mul", "loops @tree=for(0,64,1,serial,body(0))"}}});
  try {
    wrong(x).eval();
  } catch (const Error& error) {
    std::cout << error.what() << "\n";
    return equal ? 0 : 1;
  }
  return 1;
}
