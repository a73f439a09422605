#include "egret/functional.h"
#include "egret/io.h"
#include "support/files.h"

#include <gtest/gtest.h>

namespace egret::io {
namespace {

TEST(Npz, RoundTripOfEveryDtypeAndShape) {
  test::TempFolder folder;
  TensorMap tensors;
  for (int i = 0; i < kDTypes; ++i)
    if (auto type = static_cast<DType>(i);
        type != DType::BF16 && type != DType::F8E4M3 && type != DType::F8E5M2) // NumPy has no code
      tensors.emplace(std::string("m/") + name_of(type),
                      tensor({0, 1, 1, 0, 1, 1}, {2, 3}).to(type));
  tensors.emplace("scalar", scalar(3.5));
  tensors.emplace("empty", zeros({0, 4}));
  tensors.emplace("long", arange(5000) % 7);
  tensors.emplace("view", tensor({{1, 2}, {3, 4}}).transpose());
  for (bool compressed : {false, true}) {
    save_npz(folder / "a.npz", tensors, compressed);
    auto back = load_npz(folder / "a.npz");
    ASSERT_EQ(back.size(), tensors.size());
    for (const auto& [name, value] : tensors) {
      EXPECT_EQ(back.at(name).dtype(), value.dtype()) << name;
      EXPECT_EQ(back.at(name).sizes(), value.sizes()) << name;
      EXPECT_EQ(back.at(name).to_bytes(), value.to_bytes()) << name;
    }
    EXPECT_EQ(std::filesystem::file_size(folder / "a.npz") > 40000, !compressed);
  }
}

TEST(Npz, EqualContentGivesEqualBytes) {
  test::TempFolder folder;
  for (const char* name : {"a", "b"})
    save_npz(folder / name, {{"x", arange(5)}, {"w", ones({2, 2})}}, true);
  EXPECT_EQ(test::read_file(folder / "a"), test::read_file(folder / "b"));
}

TEST(Npz, OfNothing) {
  test::TempFolder folder;
  save_npz(folder / "a.npz", {});
  EXPECT_TRUE(load_npz(folder / "a.npz").empty());
}

// Made by numpy.savez and numpy.savez_compressed of NumPy 2.5: a is arange(6,
// dtype="<i4").reshape(2, 3), b is [[1.5, 2.5], [3.5, -4.5]] in Fortran order.
TEST(Npz, ReadsWhatNumpyWrote) {
  for (const char* name : {"stored", "deflated"}) {
    auto arrays =
        load_npz(std::filesystem::path(EGRET_TEST_SOURCE_DIR) / "../fuzz/corpus/npz" / name);
    ASSERT_EQ(arrays.size(), 2U);
    EXPECT_EQ(arrays.at("a").sizes(), (std::vector<std::int64_t>{2, 3}));
    EXPECT_EQ(arrays.at("a").to_vector<int>(), (std::vector<int>{0, 1, 2, 3, 4, 5}));
    EXPECT_EQ(arrays.at("b").to_vector<double>(), (std::vector<double>{1.5, 2.5, 3.5, -4.5}));
  }
}

TEST(Npz, RefusesWhatItCannotWrite) {
  test::TempFolder folder;
  EXPECT_THROW(save_npz(folder / "a.npz", {{"x", ones({2}, DType::BF16)}}), Error);
  EXPECT_THROW(save_npz(folder / "a.npz", {{"", ones({2})}}), Error);
  EXPECT_THROW(save_npz(folder / "a.npz", {{std::string(70000, 'x'), ones({2})}}), Error);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

} // namespace
} // namespace egret::io
