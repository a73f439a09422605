// The library with LLVM: where it is looked for, and what is said when it is not there or is not
// it.
#include "backend/cpu/code_generator.h"

#include "backend/cpu/code_version.h"
#include "support/files.h"
#include "support/own_folder.h"

namespace egret::backend::cpu {
namespace {

std::string refusal(const std::vector<std::string>& files) {
  return test::error_of(ErrorKind::Device, [&] { load_code_generator(files); });
}

TEST(CodeGenerator, IsOfThisBuild) {
  EXPECT_EQ(code_generator_library().sources, source_version());
  EXPECT_EQ(code_generator_library().llvm_version().find("19."), 0u);
  EXPECT_FALSE(code_generator_library().host_cpu().name.empty());
}

TEST(CodeGenerator, NamesThePlacesWhereThereIsNone) {
  EXPECT_EQ(refusal({"/nowhere/a.so", "/nowhere/b.so"}),
            "cpu code generator: there is no /nowhere/a.so or /nowhere/b.so; install it there, or "
            "set EGRET_LLVM to its path");
}

TEST(CodeGenerator, RefusesWhatIsNoneAndWhatIsOfAnotherBuild) {
  const test::TempFolder folder;
  const std::string text = (folder / "text.so").string();
  test::write_file(text, "not a library");
  EXPECT_TRUE(refusal({"/nowhere/a.so", text}).starts_with("cpu code generator: " + text + ": "))
      << refusal({text});
  EXPECT_EQ(refusal({EGRET_FAKE_CUDA}),
            "cpu code generator: " EGRET_FAKE_CUDA " is no code generator of egret");
  EXPECT_EQ(refusal({EGRET_OTHER_CODE_GENERATOR}),
            "cpu code generator: " EGRET_OTHER_CODE_GENERATOR " belongs to another build of egret");
}

TEST(OwnFolder, IsThatOfTheProgram) {
  EXPECT_EQ(own_folder(), std::filesystem::canonical("/proc/self/exe").parent_path());
}

} // namespace
} // namespace egret::backend::cpu
