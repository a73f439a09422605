#include "egret/data.h"
#include "egret/functional.h"
#include "support/files.h"
#include "support/gzip.h"

#include <algorithm>
#include <gtest/gtest.h>

namespace egret::data {
namespace {

TEST(Permutation, IsOneAndDependsOnTheSeed) {
  for (std::int64_t n : {0, 1, 2, 100}) {
    auto order = permutation(n, 5);
    EXPECT_EQ(order, permutation(n, 5));
    std::sort(order.begin(), order.end());
    for (std::int64_t i = 0; i < n; ++i)
      EXPECT_EQ(order[i], i);
  }
  EXPECT_NE(permutation(100, 5), permutation(100, 6));
}

TEST(Permutation, EveryOrderIsEquallyLikely) {
  std::map<std::vector<std::int64_t>, int> seen;
  for (std::uint64_t seed = 0; seed < 6000; ++seed)
    ++seen[permutation(3, seed)];
  ASSERT_EQ(seen.size(), 6U);
  for (const auto& [order, times] : seen)
    EXPECT_NEAR(times, 1000, 150);
}

TEST(Loader, GivesEachExampleOnceInAnEpoch) {
  Tensor x = arange(10).reshape({10, 1}) * tensor({1, 10});
  Tensor y = arange(10);
  Loader loader({x, y}, {.batch = 4, .seed = 3});
  EXPECT_EQ(loader.batches(), 3);
  std::vector<std::int64_t> seen;
  std::vector<std::size_t> sizes;
  for (const auto& batch : loader.epoch(0)) {
    auto rows = batch[0].to_vector<std::int64_t>(), labels = batch[1].to_vector<std::int64_t>();
    sizes.push_back(labels.size());
    for (std::size_t i = 0; i < labels.size(); ++i) {
      EXPECT_EQ(rows[2 * i], labels[i]);
      EXPECT_EQ(rows[2 * i + 1], 10 * labels[i]);
      seen.push_back(labels[i]);
    }
  }
  EXPECT_EQ(sizes, (std::vector<std::size_t>{4, 4, 2}));
  EXPECT_EQ(seen, loader.order(0));
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(seen, y.to_vector<std::int64_t>());
}

TEST(Loader, OrderDependsOnSeedAndEpochOnly) {
  Tensor x = arange(50);
  Loader a({x}, {.seed = 1}), b({x}, {.seed = 1}), c({x}, {.seed = 2});
  EXPECT_EQ(a.order(3), b.order(3));
  EXPECT_NE(a.order(3), a.order(4));
  EXPECT_NE(a.order(3), c.order(3));
  EXPECT_EQ(Loader({x}, {.shuffle = false}).order(7), x.to_vector<std::int64_t>());
}

TEST(Loader, CanLeaveOutTheLastBatch) {
  Loader loader({arange(10)}, {.batch = 4, .drop_last = true});
  int batches = 0;
  for (const auto& batch : loader.epoch(0)) {
    EXPECT_EQ(batch[0].size(0), 4);
    ++batches;
  }
  EXPECT_EQ(batches, 2);
}

TEST(LoaderErrors, FieldsThatDoNotFit) {
  EXPECT_NE(test::error_of(ErrorKind::Shape,
                           [] {
                             Loader({arange(3), arange(4)});
                           })
                .find("3 and 4 examples"),
            std::string::npos);
  EXPECT_THROW(Loader({}), Error);
  EXPECT_THROW(Loader({scalar(1)}), Error);
  EXPECT_THROW(Loader({arange(3)}, {.batch = 0}), Error);
}

TEST(CharCodec, RoundTrip) {
  CharCodec codec("0123456789+=");
  EXPECT_EQ(codec.encode("12+3="), (std::vector<std::int64_t>{1, 2, 10, 3, 11}));
  EXPECT_EQ(codec.decode(codec.encode("007=")), "007=");
  EXPECT_EQ(CharCodec::of_text("banana").alphabet(), "abn");
  EXPECT_NE(test::error_of(ErrorKind::Value, [&] { codec.encode("1-2"); })
                .find("'-' is not in the alphabet"),
            std::string::npos);
  EXPECT_NE(test::error_of(ErrorKind::Value, [] { CharCodec("aa"); })
                .find("'a' is in the alphabet twice"),
            std::string::npos);
  std::int64_t outside[] = {12};
  EXPECT_THROW(codec.decode(outside), Error);
}

TEST(Digits, ReadsAFolder) {
  test::TempFolder folder;
  std::string head = std::string("\0\0\x08\3", 4) + test::big_endian(2, 4) +
                     test::big_endian(28, 4) + test::big_endian(28, 4);
  test::write_file(folder / "t10k-images-idx3-ubyte.gz",
                   test::gzip(head + std::string(2 * 784, '\xff')));
  test::write_file(folder / "t10k-labels-idx1-ubyte",
                   std::string("\0\0\x08\1", 4) + test::big_endian(2, 4) + std::string("\7\0", 2));
  Digits digits = load_digits(folder.path(), "t10k");
  EXPECT_EQ(digits.size(), 2);
  EXPECT_EQ(digits.images.sizes(), (std::vector<std::int64_t>{2, 28, 28}));
  EXPECT_EQ(digits.images.max().item(), 1);
  EXPECT_EQ(digits.labels.to_vector<int>(), (std::vector<int>{7, 0}));
  EXPECT_NE(test::error_of(ErrorKind::File, [&] { load_digits(folder.path(), "train"); })
                .find("neither train-images"),
            std::string::npos);
  test::write_file(folder / "t10k-labels-idx1-ubyte",
                   std::string("\0\0\x08\1", 4) + test::big_endian(2, 4) + std::string("\7\12", 2));
  EXPECT_NE(test::error_of(ErrorKind::File, [&] { load_digits(folder.path(), "t10k"); })
                .find("label 1 is 10"),
            std::string::npos);
  test::write_file(folder / "t10k-labels-idx1-ubyte",
                   std::string("\0\0\x08\1", 4) + test::big_endian(1, 4) + "\7");
  EXPECT_NE(test::error_of(ErrorKind::File, [&] { load_digits(folder.path(), "t10k"); })
                .find("for as many images"),
            std::string::npos);
}

} // namespace
} // namespace egret::data
