// Where the time of a graph goes, and what its values are: operation by operation, and kernel by
// kernel.
//
//        us   share    GB/s  GFLOP/s  of limit  op          result        inputs | values
//     822.8  78.6 %    0.96    40.78   403.4 %  matmul_sum  f32[256,256]  f32[256,256] ... |
//     min 1.28 ...
//     ...
#include "egret/functional.h"
#include "egret/graph.h"

#include <iostream>

using namespace egret;

int main() {
  Graph cx;
  auto x = cx.tensor({256, 256}).set(full({256, 256}, 0.5)).keep();
  auto w = cx.tensor({256, 256}).set(full({256, 256}, 0.01)).keep();
  auto y = softmax(relu(matmul(x, w)), -1).retrieve();
  cx.compile(Generic{} | Fusion{}, &y);

  std::cout << "Operation by operation, slowest first:\n"
            << cx.execute_debug().slowest_first().text() << "\n";
  const DebugReport fused = cx.execute_debug({.fused = true});
  std::cout << "The kernels of the program, in their order:\n" << fused.text();
  return fused.ops.empty() ? 1 : 0;
}
