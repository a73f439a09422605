// A load generator for servers of OpenAI's interface on this machine: clients that ask, read and
// leave at random, and check every answer.
#pragma once

#include "egret/language_model.h"
#include "egret/tokenizer.h"

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace egret::test {

/// A request, and what is known of its answer.
struct LoadRequest {
  bool chat = false;
  nlohmann::json body;
  std::optional<std::size_t> prompt; ///< tokens of the prompt
  std::optional<std::string> text;   ///< that is answered
};

/// What requests are drawn from.
struct LoadDraws {
  int vocabulary = 0; ///< prompts have tokens from `first_token` to it
  int first_token = 0;
  std::size_t context = 0;  ///< most tokens of a prompt and its answer
  std::size_t prefixes = 6; ///< beginnings that prompts share, of random lengths
  std::string_view letters = "abcdefghijklmnopqrstuvwxyz"; ///< of messages, a token each or fewer
};

/// Draws requests: completions of token ids and chats, streamed or whole, one text or two, greedy
/// or sampled, most with a beginning that others have too.
class LoadRequests {
public:
  LoadRequests(LoadDraws draws, std::uint64_t seed);
  LoadRequest next();
  std::size_t below(std::size_t bound) { return random_() % bound; } ///< 0 to bound - 1

private:
  std::vector<int> ids(std::size_t count);

  LoadDraws draws_;
  std::mt19937_64 random_;
  std::vector<std::vector<int>> prefixes_;
};

/// Greedy requests and the texts that the model writes for them alone, none of which hangs on the
/// rounding of kernels: each token is well ahead of the second. The server tells the tokens of
/// chats, and its model has the same weights.
std::vector<LoadRequest> known_requests(models::LanguageModel& model, const Tokenizer& tokenizer,
                                        std::uint16_t port, const LoadDraws& draws,
                                        std::uint64_t seed, std::size_t count);

struct LoadOptions {
  int clients = 8;
  int requests = 0; ///< of each client; 0: as many as come in `seconds`
  double seconds = 0;
  double leaving = 0.25; ///< part of the requests whose client leaves before its answer ends
  double known = 0.1;    ///< part of the requests that are of those whose answers are known
  int killed = 0;        ///< client processes beside these, each killed again and again as it asks
  std::uint64_t seed = 1;
};

/// What came of it.
struct LoadReport {
  std::size_t answered = 0, left = 0, refused = 0; ///< requests; refused: 429, asked again later
  std::size_t killed = 0;                          ///< client processes that were killed
  std::size_t checked = 0;                         ///< of the answers, those whose text was known
  std::size_t tokens = 0;                          ///< of the answers
  double seconds = 0;
  std::vector<double> first;       ///< seconds from a streamed request to its first text
  std::vector<double> between;     ///< seconds from one event with text to the next of that stream
  std::vector<std::string> faults; ///< the first ones: answers out of form, connections that broke

  std::string text() const; ///< for people
};

/// Loads a server whose prefix tree may be full of anything. Returns when every client is done and
/// the server has, by its metrics, nothing left to run; what the metrics then say otherwise than
/// that all blocks are given back and no exception came is among the faults, too.
LoadReport load_server(std::uint16_t port, const LoadDraws& draws,
                       std::span<const LoadRequest> known, const LoadOptions& options);

/// The value of a metric without labels; nothing where it is missing.
std::optional<double> metric_of(std::uint16_t port, const std::string& name);

} // namespace egret::test
