// A server under many clients, some of whom leave: every answer is in order, texts that are known
// are the same, and nothing is left behind.
#include "egret/serve.h"
#include "support/files.h"
#include "support/http_client.h"
#include "support/language_models.h"
#include "support/serve_load.h"

#include <optional>

namespace egret::serve {
namespace {

using models::LanguageModel;

constexpr test::LoadDraws kDraws{.vocabulary = 64, .first_token = 8, .context = 128};

class Load : public testing::Test {
protected:
  /// Loads a server whose model has so many sequences and blocks.
  test::LoadReport run(std::int64_t sequences, std::int64_t blocks, std::size_t queue,
                       const test::LoadOptions& options) {
    test::write_served_folder(folder_.path());
    LanguageModel alone = LanguageModel::load(folder_.path(), {.context = 128});
    const std::int64_t of_block = alone.cache_bytes() / alone.cache_blocks().all;
    server_.emplace(LanguageModel::load(folder_.path(), {.context = 128,
                                                         .sequences = sequences,
                                                         .cache_bytes = blocks * of_block,
                                                         .chunk = 32}),
                    Tokenizer::load(folder_.path()),
                    ServeOptions{.model_name = "small", .queue = queue});
    const auto known = test::known_requests(alone, Tokenizer::load(folder_.path()), server_->port(),
                                            kDraws, 5, 12);
    EXPECT_EQ(known.size(), 12U);
    return test::load_server(server_->port(), kDraws, known, options);
  }
  double metric(const std::string& name) const {
    return test::metric_of(server_->port(), name).value_or(-1);
  }

  test::TempFolder folder_;
  std::optional<Server> server_;
};

TEST_F(Load, AnswersAreInOrderAndNothingIsLeftBehind) {
  const test::LoadReport report = run(4, 16, 64, {.clients = 8, .requests = 24, .known = 0.3});
  EXPECT_TRUE(report.faults.empty()) << report.text();
  EXPECT_EQ(report.answered + report.left, 8U * 24);
  EXPECT_GT(report.checked, 20U);
  EXPECT_GT(report.left, 20U);
  EXPECT_EQ(report.refused, 0U);
  // Blocks are shared, evicted and found again meanwhile.
  EXPECT_GT(metric("egret_prompt_tokens_reused_total"), 0);
  EXPECT_GT(metric("egret_cache_blocks_evicted_total"), 0);
  // All sequences and blocks are free: as many texts as there are run at once.
  const test::HttpResponse r =
      test::http(server_->port(), "POST", "/v1/completions",
                 R"({"prompt":"abc","n":4,"max_tokens":100,"temperature":1})");
  EXPECT_EQ(nlohmann::json::parse(r.body)["choices"].size(), 4U) << r.body;
}

/// Processes that are killed while they ask leave nothing behind, and others get their answers.
TEST_F(Load, ClientsThatAreKilledLeaveNothingBehind) {
  const test::LoadReport report =
      run(4, 16, 64, {.clients = 4, .requests = 24, .leaving = 0, .known = 0.3, .killed = 2});
  EXPECT_TRUE(report.faults.empty()) << report.text();
  EXPECT_EQ(report.answered, 4U * 24);
  EXPECT_GT(report.killed, 1U);
}

/// With hardly any blocks, texts that came last are read again and again, and with hardly any queue
/// requests are refused until there is room.
TEST_F(Load, AServerWithoutRoomAnswersInOrderToo) {
  const test::LoadReport report = run(4, 5, 2, {.clients = 8, .requests = 10, .known = 0.3});
  EXPECT_TRUE(report.faults.empty()) << report.text();
  EXPECT_EQ(report.answered + report.left, 8U * 10);
  EXPECT_GT(report.checked, 5U);
}

} // namespace
} // namespace egret::serve
