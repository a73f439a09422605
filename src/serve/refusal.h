// Why a request is refused, as OpenAI's interface says it.
#pragma once

#include <exception>
#include <string>

namespace egret::serve {

/// Thrown by whatever reads a request.
struct Refusal final : std::exception {
  Refusal(int http_status, std::string why, std::string field = {}, std::string machine_code = {})
      : status(http_status), message(std::move(why)), param(std::move(field)),
        code(std::move(machine_code)) {}
  const char* what() const noexcept override { return message.c_str(); }

  int status; ///< of HTTP, 4xx or 5xx
  std::string message;
  std::string param; ///< the field of the request, as in "messages[0].role"; may be empty
  std::string code;  ///< for programs, as in "model_not_found"; may be empty
};

/// {"error": {"message", "type", "param", "code"}}.
std::string body_of(const Refusal& refusal);

} // namespace egret::serve
