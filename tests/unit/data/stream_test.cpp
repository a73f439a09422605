#include "egret/checkpoint.h"
#include "egret/functional.h"
#include "egret/stream.h"
#include "support/files.h"

#include <atomic>
#include <chrono>
#include <gtest/gtest.h>
#include <thread>

namespace egret::data {
namespace {

std::vector<std::int64_t> numbers(const std::vector<Tensor>& batch) {
  return batch[0].to_vector<std::int64_t>();
}

Loader loader() {
  return Loader({arange(23)}, {.batch = 4, .seed = 9});
}

TEST(Stream, GivesTheLoadersBatchesWhateverTheWorkers) {
  const Loader plain = loader();
  for (StreamOptions options :
       {StreamOptions{.workers = 0}, {.workers = 1, .ahead = 1}, {.workers = 4, .ahead = 9}}) {
    Stream stream(loader(), options);
    EXPECT_EQ(stream.batches(), 6);
    for (std::int64_t epoch = 0; epoch < 5; ++epoch) {
      std::int64_t batch = 0;
      for (const auto& rows : plain.epoch(epoch)) {
        EXPECT_EQ(stream.epoch(), epoch);
        EXPECT_EQ(stream.batch(), batch++);
        EXPECT_EQ(numbers(stream.next()), numbers(rows));
      }
    }
  }
}

TEST(Stream, ContinuesInTheMiddleOfAnEpochFromACheckpoint) {
  test::TempFolder folder;
  Stream whole(loader(), {.workers = 2}), first(loader(), {.workers = 3}),
      second(loader(), {.workers = 1});
  for (int i = 0; i < 9; ++i)
    EXPECT_EQ(numbers(whole.next()), numbers(first.next()));
  save_checkpoint(folder / "place", first);
  EXPECT_EQ(numbers(second.next()), numbers(Stream(loader()).next()));
  load_checkpoint(folder / "place", second);
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(numbers(whole.next()), numbers(second.next()));
  whole.place.assign(tensor(std::vector<std::int64_t>{0, 0})); // and backwards
  EXPECT_EQ(numbers(whole.next()), numbers(Stream(loader()).next()));
}

TEST(Stream, MakesNoMoreThanItMayAhead) {
  std::atomic<int> made = 0;
  Stream stream(100,
                [&](std::int64_t, std::int64_t batch) {
                  ++made;
                  return std::vector<Tensor>{scalar(batch)};
                },
                {.workers = 3, .ahead = 5});
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(stream.next()[0].item<std::int64_t>(), i);
    EXPECT_LE(made, i + 1 + 5);
  }
  for (int i = 0; i < 500 && made < 15; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(made, 15);
}

TEST(Stream, GivesOnWhatItsMakerThrows) {
  for (std::int64_t workers : {0, 2}) {
    std::atomic<bool> broken = true;
    Stream stream(10,
                  [&](std::int64_t, std::int64_t batch) {
                    if (batch == 2 && broken)
                      throw Error(ErrorKind::File, "gone");
                    return std::vector<Tensor>{scalar(batch)};
                  },
                  {.workers = workers});
    stream.next();
    stream.next();
    for (int i = 0; i < 2; ++i)
      EXPECT_EQ(test::error_of(ErrorKind::File, [&] { stream.next(); }), "gone");
    std::this_thread::sleep_for(std::chrono::milliseconds(20)); // workers make nothing meanwhile
    broken = false;
    EXPECT_EQ(stream.next()[0].item(), 2);
    EXPECT_EQ(stream.next()[0].item(), 3);
  }
}

TEST(Stream, EndsWithBatchesUnderWay) {
  for (int i = 0; i < 20; ++i)
    Stream(loader(), {.workers = 2}).next();
  Stream moved = Stream(loader());
  EXPECT_EQ(numbers(moved.next()).size(), 4U);
}

TEST(StreamErrors, NameThePlace) {
  EXPECT_THROW(Stream(0, {}), Error);
  EXPECT_THROW(Stream(loader(), {.workers = -1}), Error);
  Stream stream(loader());
  stream.place.assign(tensor(std::vector<std::int64_t>{0, 6}));
  EXPECT_NE(
      test::error_of(ErrorKind::Value, [&] { stream.next(); }).find("no batch 6 of 6 in epoch 0"),
      std::string::npos);
}

TEST(TextWindows, TargetsAreOneFurther) {
  std::vector<std::int64_t> text;
  for (std::int64_t i = 0; i < 50; ++i)
    text.push_back(100 + i);
  TextWindows windows(text, 8);
  auto [inputs, targets] = windows.random(400, 3);
  EXPECT_EQ(inputs.sizes(), (std::vector<std::int64_t>{400, 8}));
  EXPECT_EQ((targets - inputs).to_vector<int>(), std::vector<int>(3200, 1));
  EXPECT_EQ((inputs.narrow(1, 1, 7) - inputs.narrow(1, 0, 7)).to_vector<int>(),
            std::vector<int>(2800, 1));
  EXPECT_EQ(inputs.min().item(), 100); // every place can be drawn
  EXPECT_EQ(targets.max().item(), 149);
  EXPECT_EQ(windows.random(5, 3).inputs.to_vector<int>(), inputs.narrow(0, 0, 5).to_vector<int>());
  EXPECT_NE(windows.random(5, 4).inputs.to_vector<int>(), inputs.narrow(0, 0, 5).to_vector<int>());
}

TEST(TextWindows, InOrderWithoutOverlap) {
  TextWindows windows(std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6}, 3);
  EXPECT_EQ(windows.in_order(), 2);
  EXPECT_EQ(windows.in_order(0, 2).inputs.to_vector<int>(), (std::vector<int>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(windows.in_order(1, 1).targets.to_vector<int>(), (std::vector<int>{4, 5, 6}));
  EXPECT_THROW(windows.in_order(1, 2), Error);
  EXPECT_EQ(TextWindows({1, 2}, 1).in_order(), 1);
  EXPECT_THROW(TextWindows({1, 2}, 2), Error);
  EXPECT_THROW(TextWindows({}, 1), Error);
}

} // namespace
} // namespace egret::data
