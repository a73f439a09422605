#include "egret/functional.h"
#include "egret/text_model.h"
#include "egret/training.h"
#include "support/files.h"

#include <gtest/gtest.h>

namespace egret::training {
namespace {

struct State {
  Tensor value = ones({2});
  EGRET_FIELDS(value)
};

TEST(LoopErrors, OptionsThatMakeNoSense) {
  State state;
  auto message = [&](const LoopOptions& o) {
    return test::error_of(ErrorKind::Value, [&] { Loop(state, o); });
  };
  EXPECT_EQ(message({.steps = -1}), "training::Loop: steps is -1");
  EXPECT_EQ(message({.log_every = 0}), "training::Loop: log_every is 0");
  EXPECT_EQ(message({.checkpoint_every = -2}), "training::Loop: checkpoint_every is -2");
  EXPECT_EQ(message({.metadata = {{"loop.step", "1"}}}),
            "training::Loop: the metadata's name 'loop.step' is taken");
}

TEST(LoopErrors, AnEvaluationMustGiveWhatIsJudged) {
  State state;
  Loop loop(state, {.steps = 1});
  auto run = [&] {
    loop.run([](std::int64_t) { return scalar(1.0); },
             [] {
               return io::Measurements{{"accuracy", 1}};
             });
  };
  EXPECT_NE(test::error_of(ErrorKind::Value, run).find("gives no 'validation' to judge by"),
            std::string::npos);
}

// The loss is of the parameters before the step; the state after it counts too.
TEST(LoopErrors, WhatIsNotFiniteEndsTheRunAndTheLastGoodCheckpointStands) {
  test::TempFolder folder;
  for (const bool in_state : {false, true}) {
    State state;
    Loop loop(state, {.steps = 100, .checkpoint = folder / "a", .checkpoint_every = 1});
    const std::string message = test::error_of(ErrorKind::Value, [&] {
      loop.run([&](std::int64_t step) {
        state.value = full({2}, static_cast<double>(step));
        if (step == 5 && in_state)
          state.value = log(zeros({2}) - 1.0);
        return scalar(step == 5 && !in_state ? std::numeric_limits<double>::infinity() : 1.0);
      });
    });
    EXPECT_NE(
        message.find(in_state ? "after step 6 'value' is not finite" : "the loss of step 6 is inf"),
        std::string::npos)
        << message;
    State read;
    Loop again(read, {.checkpoint = folder / "a"});
    again.resume();
    EXPECT_EQ(again.step(), 5);
    EXPECT_EQ(read.value.to_vector(), (std::vector<float>{4, 4}));
    std::filesystem::remove(folder / "a");
  }
}

TEST(LoopErrors, WhatIsInfiniteFromTheStartIsNoDamage) {
  test::TempFolder folder;
  State state;
  state.value = full({2}, -std::numeric_limits<double>::infinity());
  Loop loop(state, {.steps = 2, .checkpoint = folder / "a"});
  EXPECT_EQ(loop.run([](std::int64_t) { return scalar(1.0); }).steps, 2);
}

TEST(LoopErrors, ACheckpointThatCanNeverBeWrittenIsToldBeforeTheFirstStep) {
  test::TempFolder folder;
  for (const bool best : {false, true}) {
    State state;
    LoopOptions options{.steps = 3};
    (best ? options.best : options.checkpoint) = folder / "none/a";
    Loop loop(state, options);
    int steps = 0;
    test::expect_refused(
        folder / "none/a",
        [&] {
          loop.run([&](std::int64_t) {
            ++steps;
            return scalar(1.0);
          });
        },
        "cannot create a file here");
    EXPECT_EQ(steps, 0);
  }
}

struct Damage {
  State state;
  test::TempFolder folder;
  io::Metadata good = {{"loop.step", "7"}, {"loop.worse", "0"}};
  void bad(const io::Metadata& metadata, std::string_view part) {
    io::save_safetensors(folder / "a", {{"value", zeros({2})}}, metadata);
    Loop loop(state, {.checkpoint = folder / "a"});
    test::expect_refused(
        folder / "a", [&] { loop.resume(); }, part);
    EXPECT_EQ(loop.step(), 0);
    EXPECT_EQ(state.value.to_vector(), (std::vector<float>{1, 1}));
  }
};

TEST(LoopErrors, MetadataThatLies) {
  Damage d;
  d.bad({}, "the metadata has no 'loop.step'");
  for (const char* step :
       {"", "x", "7 ", "-1", "1e3", "9007199254740993", "99999999999999999999"}) {
    io::Metadata m = d.good;
    m["loop.step"] = step;
    d.bad(m, "'loop.step' is no number");
  }
  io::Metadata m = d.good;
  m["loop.best"] = "0.5";
  d.bad(m, "no 'loop.best_step'");
  m["loop.best_step"] = "3";
  m["loop.best"] = "0.5x";
  d.bad(m, "'loop.best' is no number");
}

TEST(LoopErrors, TensorsThatDoNotFit) {
  Damage d;
  io::save_safetensors(d.folder / "a", {{"value", zeros({3})}}, d.good);
  Loop loop(d.state, {.checkpoint = d.folder / "a"});
  EXPECT_NE(test::error_of(ErrorKind::Shape, [&] { loop.resume(); }).find("[2]"),
            std::string::npos);
  io::save_safetensors(d.folder / "a", {{"other", zeros({3})}}, d.good);
  EXPECT_THROW(loop.resume(), Error);
  EXPECT_EQ(loop.step(), 0);
}

models::TextModel text_model() {
  Generator g(1);
  const models::GptOptions shape{
      .vocabulary = 4, .context = 5, .layers = 2, .width = 8, .heads = 2};
  return {shape, data::CharCodec("\nabc"), models::Gpt(shape, g)};
}

struct Holder {
  models::Gpt model;
  EGRET_FIELDS(model)
};

TEST(TextModelErrors, MetadataThatLies) {
  test::TempFolder folder;
  auto model = text_model();
  Holder holder{model.gpt};
  const io::Metadata good = models::text_metadata(model.shape, model.codec);
  auto bad = [&](const char* name, const char* value, std::string_view part) {
    io::Metadata metadata = good;
    metadata[name] = value;
    save_checkpoint(folder / "a", holder, metadata);
    test::expect_refused(
        folder / "a", [&] { models::load_text_model(folder / "a"); }, part);
  };
  bad("format", "egret.addition", "no text model");
  bad("context", "6", "'model.position_embedding.weight' is [5,8], the metadata says [6,8]");
  bad("width", "16", "'model.token_embedding.weight' is [4,8], the metadata says [4,16]");
  bad("width", "-8", "'width' is not between");
  bad("layers", "3", "no tensor 'model.blocks.2.norm1.weight'");
  bad("layers", "1", "unexpected: blocks.1");
  bad("layers", "1025", "'layers' is not between 1 and 1024");
  bad("heads", "3", "3 heads do not divide a width of 8");
  bad("heads", "2x", "'heads' is not between");
  bad("alphabet", "6", "no text in hexadecimal digits");
  bad("alphabet", "6g", "no text in hexadecimal digits");
  bad("alphabet", "", "the metadata's alphabet is empty");
  bad("alphabet", "61616263", "'a' is in the alphabet twice");
  bad("tied", "1", "unexpected: head.weight");
  save_checkpoint(folder / "a", holder, {{"format", "egret.text"}});
  test::expect_refused(
      folder / "a", [&] { models::load_text_model(folder / "a"); },
      "the metadata has no 'context'");
}

TEST(TextModelErrors, PromptsAndOptions) {
  auto model = text_model();
  auto message = [&](std::string_view prompt, const models::SampleOptions& o) {
    return test::error_of(ErrorKind::Value, [&] { continue_text(model, prompt, o, [](char) {}); });
  };
  EXPECT_NE(message("abz", {}).find("'z' is not in the alphabet of 4 characters"),
            std::string::npos);
  EXPECT_NE(message("a", {.length = -1}).find("length -1"), std::string::npos);
  EXPECT_NE(message("a", {.temperature = -1}).find("temperature -1"), std::string::npos);
  EXPECT_NE(message("a", {.top_k = -1}).find("top_k -1"), std::string::npos);
}

} // namespace
} // namespace egret::training
