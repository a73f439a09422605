// A language model, or an encoder of texts, as an HTTP server with OpenAI's interface
// (docs/serving.md).
#pragma once

#include "egret/language_model.h"
#include "egret/text_encoder.h"
#include "egret/tokenizer.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace egret::serve {

struct ServeOptions {
  /// An address of this machine, IPv4 or IPv6. On a loopback address without a key, requests whose
  /// field Host names anything but localhost or an address get 421 (DNS rebinding).
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;      ///< 0: one that is free
  std::string model_name = {}; ///< that requests name; not empty
  std::string api_key = {}; ///< bearer token that all requests but /health must have; empty: none
  std::size_t queue = 64;   ///< requests that may wait while all sequences are in use
  std::size_t connections = 256;      ///< open at a time
  std::size_t body_bytes = 1U << 20U; ///< most of a request
  std::int64_t max_tokens = 0;        ///< most of an answer; 0: what the context holds
  double request_seconds = 600;       ///< from the arrival of a request to its end
  double client_seconds = 30; ///< a client may take until a request's header is there, for its
                              ///< body, and to take a part of an answer
};

/// Refuses without a model what Server's constructor refuses, with the same errors: before weights
/// are read. Nothing listens when it returns.
void require_servable(const ServeOptions& options, const Tokenizer& tokenizer);

/// Serves while it lives: one thread for connections, one for the model, which writes the texts of
/// all running requests together (models::GenerationBatch).
class Server {
public:
  /// Listens when it returns. Error(Value) for options out of range and for an address that is
  /// none; Error(State) for one that cannot be had, with the system's reason; Error(Parse) and
  /// Error(Unsupported) for a chat template that cannot be read.
  Server(models::LanguageModel model, Tokenizer tokenizer, ServeOptions options);
  /// Embeddings only: requests for texts are refused.
  Server(models::TextEncoder model, Tokenizer tokenizer, ServeOptions options);
  ~Server(); ///< stop(0)
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  std::uint16_t port() const noexcept;

  /// Takes no more requests, waits up to so many seconds for those under way, ends the others and
  /// returns. Further calls do nothing.
  void stop(double grace_seconds);

private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

} // namespace egret::serve
