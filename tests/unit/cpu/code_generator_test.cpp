// The library with LLVM: where it is looked for, and what is said when it is not there or is not
// it.
#include "backend/cpu/code_generator.h"

#include "backend/cpu/code_version.h"
#include "support/files.h"
#include "support/own_folder.h"

#include <sys/stat.h>

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

// The loader would map them and end the process, or wait for somebody to write.
TEST(CodeGenerator, RefusesALibraryThatIsNotWholeAndWhatIsNoFile) {
  const test::TempFolder folder;
  const std::string whole = test::read_file(EGRET_OTHER_CODE_GENERATOR);
  const std::string part = (folder / "part.so").string(), pipe = (folder / "pipe.so").string();
  ASSERT_GT(whole.size(), 700u);
  for (const std::size_t bytes : {std::size_t{70}, std::size_t{700}}) {
    test::write_file(part, whole.substr(0, bytes));
    EXPECT_EQ(refusal({part}), "cpu code generator: " + part + " ends before its contents do")
        << bytes;
  }
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& file : {pipe, folder.path().string(), std::string("/dev/null")})
    EXPECT_EQ(refusal({file}), "cpu code generator: " + file + " is no regular file");
}

TEST(CodeGenerator, NamesTheVariableThatNamesTheFile) {
  const test::TempFolder folder;
  const std::vector<std::string> files{folder.path().string()};
  EXPECT_EQ(test::error_of(ErrorKind::Device, [&] { load_code_generator(files, "EGRET_LLVM"); }),
            "cpu code generator: EGRET_LLVM: " + files[0] + " is no regular file");
}

TEST(CodeGenerator, LoadsANameWithoutASlashFromTheWorkingFolder) {
  const test::TempFolder folder;
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::copy_file(std::filesystem::absolute(EGRET_OTHER_CODE_GENERATOR),
                             folder / "mine.so");
  std::filesystem::current_path(folder.path());
  const std::string said = refusal({"mine.so"});
  std::filesystem::current_path(before);
  EXPECT_EQ(said, "cpu code generator: mine.so belongs to another build of egret");
}

TEST(OwnFolder, IsThatOfTheProgram) {
  EXPECT_EQ(own_folder(), std::filesystem::canonical("/proc/self/exe").parent_path());
}

} // namespace
} // namespace egret::backend::cpu
