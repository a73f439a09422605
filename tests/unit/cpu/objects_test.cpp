// Machine code that another process made.
#include "backend/cpu/compiled.h"
#include "backend/cpu/cpu_device.h"

#include "support/files.h"
#include "support/program_maker.h"
#include "support/tuning.h"

#include <gtest/gtest.h>

namespace egret::backend::cpu {
namespace {

using egret::testing::ProgramMaker;
using egret::testing::Warnings;
using kernel::KernelProgram;

// y = f(x + by) for eight numbers, f a call of the library.
KernelProgram shifted_erf(double by, const std::string& name = "shifted") {
  ProgramMaker m(name);
  const int x = m.buffer(DType::F64, 8, true, false), y = m.buffer(DType::F64, 8, false, true);
  const Expr lane = kernel::lane_variable(8);
  const auto sum = m.apply(Op::Add, {DType::F64, 8},
                           {m.load(x, 8, lane), m.constant(Scalar::of(DType::F64, by), 8)});
  m.store(y, lane, m.apply(Op::Erf, {DType::F64, 8}, {sum}));
  return m.program;
}

std::vector<double> run(Device& device, const Artifact& artifact, const KernelProgram& program) {
  std::vector<double> x{0, 1, 2, 3, 4, 5, 6, 7}, y(8, -7);
  void* pointers[] = {x.data(), y.data()};
  device.launch(artifact, program, {pointers, nullptr, nullptr, nullptr, nullptr});
  return y;
}

class CpuObjects : public ::testing::Test {
protected:
  test::TempFolder folder;
  ObjectCache objects{folder.path(), "cpu", "v"};
  std::unique_ptr<Device> device = make_cpu_device(2, &objects);
  std::vector<double> right =
      run(*device, *make_cpu_device(1)->compile(shifted_erf(1)), shifted_erf(1));
};

TEST_F(CpuObjects, ASecondProcessCompilesNothing) {
  const auto first = device->compile(shifted_erf(1));
  EXPECT_FALSE(first->loaded());
  EXPECT_EQ(run(*device, *first, shifted_erf(1)), right);
  device.reset();
  ObjectCache again(folder.path(), "cpu", "v");
  const auto other = make_cpu_device(2, &again);
  const auto second = other->compile(shifted_erf(1));
  EXPECT_TRUE(second->loaded());
  EXPECT_EQ(run(*other, *second, shifted_erf(1)), right);
  EXPECT_FALSE(other->compile(shifted_erf(2))->loaded());
  EXPECT_FALSE(make_cpu_device(2)->compile(shifted_erf(1))->loaded());
}

TEST_F(CpuObjects, SeveralOfOneProgramLiveSideBySide) {
  auto first = device->compile(shifted_erf(1));
  const auto second = device->compile(shifted_erf(1)), third = device->compile(shifted_erf(1));
  EXPECT_TRUE(second->loaded() && third->loaded());
  first.reset();
  EXPECT_EQ(run(*device, *second, shifted_erf(1)), right);
  EXPECT_EQ(run(*device, *third, shifted_erf(1)), right);
}

TEST_F(CpuObjects, NamesDoNotMatterAndEverythingElseDoes) {
  const Isa isa = detect_host(1).isa;
  const Hash128 key = object_key(shifted_erf(1), isa);
  EXPECT_EQ(object_key(shifted_erf(1, "other"), isa), key);
  // Programs that KernelCache takes for one have one key, or a later process does not find what an
  // earlier one shared.
  KernelProgram renamed = shifted_erf(1);
  for (kernel::Buffer& buffer : renamed.buffers)
    buffer.name += "7";
  EXPECT_EQ(kernel::hash_of(renamed), kernel::hash_of(shifted_erf(1)));
  EXPECT_EQ(object_key(renamed, isa), key);
  EXPECT_FALSE(object_key(shifted_erf(1.5), isa) == key);
  Isa other = isa;
  other.cpu += "x";
  EXPECT_FALSE(object_key(shifted_erf(1), other) == key);
  other = isa;
  other.features += ",+more";
  EXPECT_FALSE(object_key(shifted_erf(1), other) == key);
  EXPECT_FALSE(device->compile(shifted_erf(1))->loaded());
  EXPECT_TRUE(device->compile(shifted_erf(1, "other"))->loaded());
}

// A whole file with the right name, hash and key, and in it what is not the program's code.
TEST_F(CpuObjects, WhatCannotBeLinkedIsMadeAnewWithOneWarning) {
  const Warnings warnings;
  const Isa isa = detect_host(2).isa;
  device->compile(shifted_erf(2));
  const auto another = *objects.find(object_key(shifted_erf(2), isa));
  for (const std::string& bad : {std::string("no object file"), std::string(), another,
                                 another.substr(0, another.size() / 2)}) {
    objects.keep(object_key(shifted_erf(1), isa), bad);
    const auto artifact = device->compile(shifted_erf(1));
    EXPECT_FALSE(artifact->loaded());
    EXPECT_EQ(run(*device, *artifact, shifted_erf(1)), right);
    EXPECT_TRUE(device->compile(shifted_erf(1))->loaded());
  }
  EXPECT_EQ(warnings.all.size(), 1u);
}

} // namespace
} // namespace egret::backend::cpu
