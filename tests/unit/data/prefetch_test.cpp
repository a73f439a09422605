#include "egret/checkpoint.h"
#include "egret/functional.h"
#include "egret/prefetch.h"
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

TEST(PrefetchLoader, GivesTheLoadersBatchesWhateverTheWorkers) {
  const Loader plain = loader();
  for (PrefetchOptions options :
       {PrefetchOptions{.workers = 0}, {.workers = 1, .ahead = 1}, {.workers = 4, .ahead = 9}}) {
    PrefetchLoader batches(loader(), options);
    EXPECT_EQ(batches.batches(), 6);
    for (std::int64_t epoch = 0; epoch < 5; ++epoch) {
      std::int64_t batch = 0;
      for (const auto& rows : plain.epoch(epoch)) {
        EXPECT_EQ(batches.epoch(), epoch);
        EXPECT_EQ(batches.batch(), batch++);
        EXPECT_EQ(numbers(batches.next()), numbers(rows));
      }
    }
  }
}

TEST(PrefetchLoader, ContinuesInTheMiddleOfAnEpochFromACheckpoint) {
  test::TempFolder folder;
  PrefetchLoader whole(loader(), {.workers = 2}), first(loader(), {.workers = 3}),
      second(loader(), {.workers = 1});
  for (int i = 0; i < 9; ++i)
    EXPECT_EQ(numbers(whole.next()), numbers(first.next()));
  save_checkpoint(folder / "position", first);
  EXPECT_EQ(numbers(second.next()), numbers(PrefetchLoader(loader()).next()));
  load_checkpoint(folder / "position", second);
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(numbers(whole.next()), numbers(second.next()));
  whole.position.assign(tensor(std::vector<std::int64_t>{0, 0})); // and backwards
  EXPECT_EQ(numbers(whole.next()), numbers(PrefetchLoader(loader()).next()));
}

TEST(PrefetchLoader, MakesNoMoreThanItMayAhead) {
  std::atomic<int> made = 0;
  PrefetchLoader batches(100,
                         [&](std::int64_t, std::int64_t batch) {
                           ++made;
                           return std::vector<Tensor>{scalar(batch)};
                         },
                         {.workers = 3, .ahead = 5});
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(batches.next()[0].item<std::int64_t>(), i);
    EXPECT_LE(made, i + 1 + 5);
  }
  while (made < 15) // however long a busy machine takes
    std::this_thread::yield();
  EXPECT_EQ(made, 15);
}

TEST(PrefetchLoader, GivesOnWhatItsMakerThrows) {
  for (std::int64_t workers : {0, 2}) {
    std::atomic<bool> broken = true;
    PrefetchLoader batches(10,
                           [&](std::int64_t, std::int64_t batch) {
                             if (batch == 2 && broken)
                               throw Error(ErrorKind::File, "gone");
                             return std::vector<Tensor>{scalar(batch)};
                           },
                           {.workers = workers});
    batches.next();
    batches.next();
    for (int i = 0; i < 2; ++i)
      EXPECT_EQ(test::error_of(ErrorKind::File, [&] { batches.next(); }), "gone");
    std::this_thread::sleep_for(std::chrono::milliseconds(20)); // workers make nothing meanwhile
    broken = false;
    EXPECT_EQ(batches.next()[0].item(), 2);
    EXPECT_EQ(batches.next()[0].item(), 3);
  }
}

TEST(PrefetchLoader, EndsWithBatchesUnderWay) {
  for (int i = 0; i < 20; ++i)
    PrefetchLoader(loader(), {.workers = 2}).next();
  PrefetchLoader moved = PrefetchLoader(loader());
  EXPECT_EQ(numbers(moved.next()).size(), 4U);
}

TEST(StreamErrors, NameThePlace) {
  EXPECT_THROW(PrefetchLoader(0, {}), Error);
  EXPECT_THROW(PrefetchLoader(loader(), {.workers = -1}), Error);
  PrefetchLoader batches(loader());
  batches.position.assign(tensor(std::vector<std::int64_t>{0, 6}));
  EXPECT_NE(
      test::error_of(ErrorKind::Value, [&] { batches.next(); }).find("no batch 6 of 6 in epoch 0"),
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
  EXPECT_EQ(inputs.min().item(), 100); // every position can be drawn
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
