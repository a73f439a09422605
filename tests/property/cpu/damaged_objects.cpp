// A thousand damages to machine code on disk: results stay right, with one warning at most.
#include "backend/cpu/cpu_device.h"

#include "support/files.h"
#include "support/program_maker.h"
#include "support/tuning.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace egret::backend::cpu {
namespace {

namespace fs = std::filesystem;
using egret::testing::ProgramMaker;
using egret::testing::Warnings;

kernel::KernelProgram scaled(float factor) {
  ProgramMaker m("scaled");
  const int x = m.buffer(DType::F32, 16, true, false), y = m.buffer(DType::F32, 16, false, true);
  const auto by = m.constant(Scalar::of(DType::F32, double{factor}), 16);
  const Expr lane = kernel::lane_variable(16);
  m.store(y, lane, m.apply(Op::Mul, {DType::F32, 16}, {m.load(x, 16, lane), by}));
  return m.program;
}

// Flips bits, cuts, writes over, lengthens, swaps with another file, empties.
void damage(const fs::path& path, const fs::path& other, std::mt19937& random) {
  std::string bytes = test::read_file(path);
  auto place = [&] { return bytes.empty() ? 0 : random() % bytes.size(); };
  switch (random() % 6) {
  case 0:
    for (auto flips = 1 + random() % 8; flips > 0 && !bytes.empty(); --flips)
      bytes[place()] ^= static_cast<char>(1 << random() % 8);
    break;
  case 1:
    bytes.resize(place());
    break;
  case 2:
    for (std::size_t i = place(), end = std::min(bytes.size(), i + random() % 64); i < end; ++i)
      bytes[i] = static_cast<char>(random());
    break;
  case 3:
    bytes.append(1 + random() % 100, '\0');
    break;
  case 4:
    bytes = test::read_file(other);
    break;
  case 5:
    bytes.clear();
  }
  test::write_file(path, bytes);
}

TEST(DamagedObjects, NeverRun) {
  constexpr int kPrograms = 4, kDamages = 1000;
  const test::TempFolder folder;
  ObjectCache objects(folder.path(), "cpu", "v");
  const auto device = make_cpu_device(1, &objects);
  std::vector<fs::path> files;
  for (int p = 0; p < kPrograms; ++p) {
    device->compile(scaled(static_cast<float>(p)));
    for (const auto& entry : fs::directory_iterator(objects.folder()))
      if (std::find(files.begin(), files.end(), entry.path()) == files.end())
        files.push_back(entry.path());
  }
  ASSERT_EQ(files.size(), std::size_t{kPrograms});
  const Warnings warnings;
  std::mt19937 random(3);
  int made = 0;
  for (int i = 0; i < kDamages; ++i) {
    const std::size_t p = random() % kPrograms;
    const std::string before = test::read_file(files[p]);
    damage(files[p], files[random() % kPrograms], random);
    const bool whole = test::read_file(files[p]) == before;
    const auto program = scaled(static_cast<float>(p));
    const auto artifact = device->compile(program);
    ASSERT_EQ(artifact->loaded(), whole) << "damage " << i;
    made += !whole;
    std::vector<float> x(16, 3), y(16, -1);
    void* pointers[] = {x.data(), y.data()};
    device->launch(*artifact, program, {pointers, nullptr, nullptr, nullptr, nullptr});
    ASSERT_EQ(y, std::vector<float>(16, 3 * static_cast<float>(p))) << "damage " << i;
  }
  EXPECT_GT(made, kDamages * 8 / 10);
  EXPECT_EQ(warnings.all.size(), 1u);
}

} // namespace
} // namespace egret::backend::cpu
