// What a C library for GPUs cannot have is refused with the kernel's name.
#include "backend/cuda/c_library.h"
#include "backend/cuda/target.h"
#include "compiler/compile.h"
#include "support/contractions.h"
#include "support/cuda_kernels.h"

#include <gtest/gtest.h>

namespace egret::backend::cuda {
namespace {

TEST(CudaCLibrary, ProductsOfALibraryAreRefused) {
  kernel::KernelProgram program;
  program.name = "matmul_of_cublas";
  program.product.emplace();
  kernel::Plan plan;
  const kernel::Step step;
  const LibraryStep steps[] = {{&step, &program, false}};
  const ir::Graph graph;
  const c::LibraryInterface interface {
    .name = "f", .inputs = {}, .results = {}
  };
  const auto nvrtc = Nvrtc::load({{}, {EGRET_FAKE_CUDA}, {}});
  EXPECT_EQ(egret::testing::error_of(ErrorKind::Unsupported,
                                     [&] {
                                       render_library(plan, steps, graph, interface,
                                                      known_target(90), *nvrtc, nullptr);
                                     }),
            "library: kernel matmul_of_cublas is a call of cublasLt, which a C library does not "
            "have");
}

// What runs on one GPU alone says so; all else has PTX for later ones.
TEST(CudaCLibrary, TheHeaderSaysWhichGpusItIsFor) {
  egret::testing::fake_cuda(EGRET_FAKE_CUDA);
  const auto device =
      make_cuda_device(0, {rendered_text, {{EGRET_FAKE_CUDA}, {EGRET_FAKE_CUDA}, {}}, nullptr});
  const auto nvrtc = Nvrtc::load({{}, {EGRET_FAKE_CUDA}, {}});
  const egret::testing::Einsum e{"mk", "kn", "mn", {{'m', 512}, {'n', 512}, {'k', 256}}};
  for (const auto& [dtype, gpus] :
       {std::pair(DType::BF16, "9.0 alone"), {DType::I32, "9.0 and later"}}) {
    ir::Graph graph;
    const ir::NodeId a = graph.input("a", dtype, e.shape_of("mk")),
                     b = graph.input("b", dtype, e.shape_of("kn"));
    graph.outputs = {egret::testing::einsum(graph, a, b, e)};
    compiler::KernelCache cache;
    const compiler::Compiled compiled = compiler::compile_graph(graph, {}, *device, cache);
    std::vector<LibraryStep> steps;
    for (const compiler::PlannedWork& work : compiler::work_of(compiled))
      steps.push_back({work.step, work.program, work.settled});
    c::LibraryInterface interface {
      .name = "f", .inputs = {{"a", {}, 0}, {"b", {}, 1}}, .results = { {} }
    };
    interface.results[0].dtype = dtype;
    interface.results[0].shape = e.shape_of("mn");
    const c::LibraryText text =
        render_library(compiled.plan, steps, graph, interface, device->target(), *nvrtc, nullptr);
    EXPECT_NE(text.header.find(std::string("of compute capability ") + gpus), std::string::npos)
        << text.header;
  }
}

} // namespace
} // namespace egret::backend::cuda
