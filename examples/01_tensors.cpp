// Tensors are lazy: functions record, reading computes.
#include "egret/counters.h"
#include "egret/functional.h"

#include <iostream>

using namespace egret;

int main() {
  // A vector times a 4x5 matrix holding 0.1, 0.2 ... 2.0.
  std::vector<float> weights;
  for (int i = 1; i <= 20; ++i)
    weights.push_back(0.1f * static_cast<float>(i));
  const Tensor w = tensor(weights, Shape{4, 5});
  const Tensor x = tensor({1.0, 2.0, 3.0, 4.0});

  const Counters before = counters();
  const Tensor y = matmul(x, w);
  std::cout << "recorded " << (counters() - before).ops_recorded << " operations, launched "
            << (counters() - before).kernels_launched << " kernels\n";
  std::cout << graph_text(y); // matmul is expand, multiply, sum
  std::cout << y << "\n";     // reading computes: [11, 12, 13, 14, 15]
  std::cout << "launched " << (counters() - before).kernels_launched << " kernel\n\n";

  // Temporaries that no handle holds are never stored: one kernel, one read, one write.
  const Tensor big = full({1000, 1000}, 0.5).eval();
  const Tensor z = tanh(big * 2 + 1);
  std::cout << explain(z) << "\n";

  // Indexing, in place and not.
  Tensor t = arange(12).reshape({3, 4});
  std::cout << t[{Slice(1, 3), Slice({}, {}, -1)}] << "\n";
  const Tensor copy = t.clone();
  t.assign({0, Slice(0, {}, 2)}, 100);
  std::cout << t[0] << " was " << copy[0] << "\n";

  // Mistakes are told where they are made.
  try {
    matmul(tensor({{1.0, 2.0}}), t);
  } catch (const Error& error) {
    std::cout << error.what() << "\n";
    return error.kind() == ErrorKind::Shape ? 0 : 1;
  }
  return 1; // not reached
}
