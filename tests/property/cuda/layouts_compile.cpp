// Products whose factors a search puts into other orders, for a GPU: their kernels compute what the
// reference says, interpreted, and compile. NVRTC needs no GPU; where it is not installed that part
// is left out.
#include "backend/cuda/nvrtc.h"
#include "backend/cuda/render.h"
#include "backend/reference/reference.h"
#include "compiler/pipeline.h"
#include "compiler/search/layout_moves.h"
#include "egret/error.h"
#include "support/contractions.h"
#include "support/nvrtc.h"
#include "support/region_forms.h"
#include "support/region_runner.h"

#include <gtest/gtest.h>

namespace egret {
namespace {

using backend::cuda::Nvrtc;
using testing::Einsum;

void check_layouts(const ir::Graph& graph, const compiler::CandidateGraph& plain,
                   const compiler::Move& move, const kernel::Target& target) {
  const compiler::LayoutAssignment assigned =
      compiler::with_layouts(plain.facts(), move.choices.layout_changes);
  const compiler::CandidateGraph laid(assigned.graph);
  const auto inputs = testing::inputs_of(graph, 5, false);
  auto all = inputs;
  std::vector<backend::reference::HostArray> from;
  for (const std::size_t source : assigned.sources)
    from.push_back(inputs[source]);
  if (!from.empty())
    for (auto& array : backend::reference::execute(assigned.fill, from))
      all.push_back(std::move(array));
  for (const auto& c : testing::region_cases(laid.graph(), all, target)) {
    const std::string wrong = testing::check_generators(c, target, {}, 1);
    EXPECT_TRUE(wrong.empty()) << move.what << "\n" << wrong;
  }
  const auto compiler = testing::nvrtc();
  if (!compiler)
    return;
  const auto cuda = backend::cuda::cuda_target(target);
  const auto parts =
      compiler::with_launches(laid, {}, target, choices_in_layouts(move.choices, assigned));
  for (const auto& built : parts.regions)
    compiler->compile(render_cuda(kernel::lower_greedily(built.region, target).program, cuda),
                      compiler->architecture_for(cuda.capability, cuda.specific));
}

TEST(CudaLayouts, KernelsAreRightAndCompile) {
  const kernel::Target target = backend::cuda::known_target(90);
  int moves = 0;
  for (const DType dtype : {DType::F32, DType::BF16})
    for (const char* right : {"nk", "kn"})
      for (const bool steady : {false, true})
        for (const std::int64_t k : {64, 61}) {
          const Einsum e{"mk", right, "mn", {{'m', 20}, {'n', k + 8}, {'k', k}}};
          ir::Graph g;
          const ir::NodeId a = g.input("a", dtype, e.shape_of("mk")),
                           b = g.input("b", dtype, e.shape_of(right));
          g.outputs = {testing::einsum(g, a, b, e)};
          const auto normal = compiler::normal_form(g);
          const compiler::CandidateGraph& plain = *normal;
          const auto greedy = compiler::partition_for(plain, {}, target);
          for (const compiler::Move& move :
               compiler::layout_moves_of(plain.facts(), greedy, target, {{false, steady}, {}}, 0)) {
            ++moves;
            check_layouts(g, plain, move, target);
          }
        }
  EXPECT_GE(moves, 12);
}

} // namespace
} // namespace egret
