// A kernel builder of one's own: it looks at each kernel that a program needs, finds by a pattern
// those that it can make, and claims them with a schedule. What it claims competes with the
// compiler's own, and its results are checked first.
//
//   claimed: a halved exponential of 3072 elements
//   equal values
#include "egret/builders.h"
#include "egret/explain.h"
#include "egret/functional.h"
#include "egret/pattern.h"

#include <iostream>

using namespace egret;

namespace {

/// exp(x) * c of 64 x 48, in 6 parts for the cores, in vectors of 8. The score, in seconds, says
/// how fast it is believed to be; without one the cost model says it.
std::optional<KernelClaim> halved_exponential(const KernelSite& site) {
  using pattern::any, pattern::node;
  if (find(site.graph, node(Op::Mul, {node(Op::Exp, {any("x")}), any("c")})).empty() ||
      site.device != "cpu")
    return std::nullopt;
  std::cout << "claimed: a halved exponential of 3072 elements\n";
  return KernelClaim{"loops @tree=for(0,6,512,core,for(0,64,8,serial,for(0,8,1,vector,body(0))))",
                     1e-9};
}

} // namespace

int main() {
  const Tensor x = (arange(64 * 48).reshape({64, 48}).to(DType::F32) * 1e-3).eval();
  const auto halved = [&] { return exp(x) * 0.5; };
  std::string explained;
  Tensor mine;
  {
    const BuilderScope scope({"halved", &halved_exponential});
    mine = halved();
    explained = explain(mine);
    mine.eval();
  }
  std::cout << explained;
  const bool equal = allclose(mine, halved(), 1e-6, 0).item<bool>();
  std::cout << (equal ? "equal values\n" : "other values\n");
  return equal && explained.find("halved") != std::string::npos ? 0 : 1;
}
