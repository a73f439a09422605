// The endpoints: from a request of HTTP to its answer, or to a job for the engine.
#pragma once

#include "egret/chat_template.h"
#include "egret/grammar.h"
#include "egret/serve.h"
#include "serve/answer.h"
#include "serve/engine.h"
#include "serve/refusal.h"
#include "serve/request.h"

#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

namespace egret::serve {

/// What of a request of HTTP counts here.
struct HttpRequest {
  std::string_view method, target; ///< as in "GET", "/v1/models?a=b"
  std::string_view host;           ///< as in "localhost:8080"; empty where there is none
  std::string_view content_type, authorization;
  std::string_view body;
};

struct Reply {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
};
Reply reply_of(const Refusal& refusal);

/// A text to be written, and how it is told.
struct Generation {
  Job job;
  AnswerForm form;
};

/// Texts that become embeddings, and how they are told.
struct EmbeddingRequest {
  std::vector<std::vector<int>> texts;
  bool base64 = false;
  std::string model;
  std::size_t tokens = 0; ///< of all texts
};

/// Of the tokenizer, where it has one. Errors as Server's constructor.
std::optional<ChatTemplate> template_of(const Tokenizer& tokenizer, const ServeOptions& options);

class Api {
public:
  /// What it is given outlives it. Errors as Server's constructor.
  Api(const ServedModel& model, const Tokenizer& tokenizer, const ServeOptions& options,
      const Metrics& metrics);

  /// The path that a request's target names where there is one, "other" otherwise: a label.
  static std::string_view endpoint(std::string_view target);
  static std::string_view method(std::string_view target); ///< that it takes; empty for others

  /// Refuses by host, path, method, key and type of content, so that no body is read in vain.
  void check_head(const HttpRequest& request) const;
  /// The answer, or a job. Refusal for what cannot be answered.
  std::variant<Reply, Generation, EmbeddingRequest> answer(const HttpRequest& request) const;

private:
  std::string render(const Messages& messages, const std::string& tools_json) const;
  std::vector<int> ids_of(const Prompt& prompt, bool add_special,
                          const std::string& tools_json = {}) const;
  std::shared_ptr<const TokenGrammar> grammar_of(const CompletionBody& body) const;
  std::shared_ptr<const TokenGrammar> grammar_of(const CallText& text,
                                                 const std::string& field) const;
  Generation generation(CompletionBody body, bool chat) const;
  EmbeddingRequest embeddings(const EmbeddingBody& body) const;
  void require_fits(const std::vector<int>& ids, const std::string& field) const;
  Reply tokenize(const TokenizeBody& body) const;
  nlohmann::ordered_json model_json() const;
  void require_model(const std::string& name) const;

  const ServedModel& model_;
  const Tokenizer& tokenizer_;
  const ServeOptions& options_;
  const Metrics& metrics_;
  const bool for_this_machine_; ///< listens on a loopback address and has no key
  std::optional<ChatTemplate> template_;
  ToolForm tool_form_;
  std::int64_t created_;
  // Of grammars, made as requests come; of the thread that answers.
  mutable std::optional<TokenTexts> texts_;
  mutable std::map<std::string, std::shared_ptr<const TokenGrammar>> grammars_; ///< by their text
};

} // namespace egret::serve
