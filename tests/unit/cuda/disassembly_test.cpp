// Instructions of kernels with the lines of the text that they come from, and what launches take.
#include "backend/common/machine_code.h"
#include "backend/cuda/disassembly.h"
#include "support/cuda_kernels.h"
#include "support/files.h"
#include "support/nvrtc.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

namespace egret::backend::cuda {
namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Disassembly, OfPtxHasTheLinesOfTheText) {
  const std::string ptx = ".version 8.5\n"
                          "\t.file\t1 \"k.cu\"\n"
                          ".visible .entry k(\n"
                          "\t.param .u64 k_param_0\n)\n{\n"
                          "\t.reg .f32 %f<3>;\n"
                          "\t.loc\t1 7 3\n"
                          "\tadd.f32 %f1, %f1, %f2;\n"
                          "\t.loc\t1 9 1, function_name $L__info_string0, inlined_at 1 7 3\n"
                          "\tret;\n"
                          "$L__BB0_1:\n"
                          "}\n"
                          "\t.section\t.debug_str\n\t{\n$L__info_string0:\n.b8 95\n\t}\n";
  EXPECT_EQ(with_source_lines(ptx, 2), ".version 8.5\n"
                                       ".visible .entry k(\n"
                                       "\t.param .u64 k_param_0\n)\n{\n"
                                       "\t.reg .f32 %f<3>;\n"
                                       "\tadd.f32 %f1, %f1, %f2;  // source 8\n"
                                       "\tret;  // source 10\n"
                                       "$L__BB0_1:\n"
                                       "}\n");
}

TEST(Disassembly, OfMachineCodeHasThemToo) {
  const std::string sass = "//--------------------- .text.k ---------\n"
                           "\t//## File \"/tmp/k.cu\", line 5\n"
                           "        /*0000*/ LDC R1, c[0x0][0x28] ;\n"
                           "\t//## File \"/tmp/k.cu\", line 6 inlined at \"/tmp/k.cu\", line 9\n"
                           "        /*0010*/ EXIT ;\n";
  EXPECT_EQ(with_source_lines(sass, 1), "//--------------------- .text.k ---------\n"
                                        "        /*0000*/ LDC R1, c[0x0][0x28] ;  // source 5\n"
                                        "        /*0010*/ EXIT ;  // source 6\n");
}

TEST(Disassembly, OfDamagedListingsIsStillText) {
  for (const std::string listing :
       {".loc", ".loc 1", ".loc 1 x 2\n\tret;", "//## File \n;", "\t;\n", "", "\n\n", "}"})
    EXPECT_NO_THROW(with_source_lines(listing, 1)) << listing;
}

constexpr const char* kText = "extern \"C\" __global__ void k(float* x) {\n"
                              "  x[threadIdx.x] = x[threadIdx.x] * 3.0f;\n"
                              "}\n";

TEST(Disassembly, IsPtxWhereThereIsNoDisassembler) {
  const auto compiler = testing::nvrtc();
  if (!compiler)
    GTEST_SKIP() << "no NVRTC on this machine";
  const std::string path = std::getenv("PATH");
  ::setenv("PATH", "/nonexistent", 1);
  const std::string listing = disassembly(*compiler, kText, "sm_90a", "k", 2);
  ::setenv("PATH", path.c_str(), 1);
  EXPECT_TRUE(has(listing, "mul")) << listing;
  EXPECT_TRUE(has(listing, "// source 3")) << listing;
  EXPECT_FALSE(has(listing, ".debug")) << listing;
}

TEST(Disassembly, IsThatOfNvdisasmWhereItIsOnThePath) {
  const auto compiler = testing::nvrtc();
  if (!compiler)
    GTEST_SKIP() << "no NVRTC on this machine";
  const test::TempFolder folder;
  const auto tool = folder / "nvdisasm";
  test::write_file(tool, "#!/bin/sh\n"
                         "[ \"$1\" = --version ] && exit 0\n"
                         "head -c 4 \"$3\" | tail -c 3; echo\n"
                         "echo '\t//## File \"k.cu\", line 2'\n"
                         "echo '        /*0000*/ FMUL R0, R0, 2 ;'\n");
  std::filesystem::permissions(tool, std::filesystem::perms::owner_all);
  const std::string path = std::getenv("PATH");
  ::setenv("PATH", (folder / "").string().append(":").append(path).c_str(), 1);
  const std::string listing = disassembly(*compiler, kText, "sm_90a", "k", 1);
  test::write_file(tool, "#!/bin/sh\nexit 3\n"); // it fails: PTX again
  const std::string fallback = disassembly(*compiler, kText, "sm_90a", "k", 1);
  ::setenv("PATH", path.c_str(), 1);
  EXPECT_EQ(listing, "ELF\n        /*0000*/ FMUL R0, R0, 2 ;  // source 2\n");
  EXPECT_TRUE(has(fallback, "mul")) << fallback;
}

TEST(Disassembly, IsOfTheDevicesArtifacts) {
  auto& fake = testing::fake_cuda(EGRET_FAKE_CUDA);
  fake.launcher = testing::launch_axpb;
  const auto device =
      make_cuda_device(0, {testing::axpb_text, {{EGRET_FAKE_CUDA}, {EGRET_FAKE_CUDA}}, nullptr});
  const kernel::KernelProgram program = testing::axpb_program();
  const auto artifact = device->compile(program);
  const auto* code = dynamic_cast<const MachineCode*>(artifact.get());
  ASSERT_NE(code, nullptr);
  const CodeUse use = code->use();
  EXPECT_EQ(use.threads, program.launch.threads);
  EXPECT_EQ(use.blocks, 2048 / use.threads); // as the driver says
  EXPECT_DOUBLE_EQ(use.occupancy, static_cast<double>(use.blocks) * use.threads / 2048);
  EXPECT_FALSE(code->assembly().empty());
}

} // namespace
} // namespace egret::backend::cuda
