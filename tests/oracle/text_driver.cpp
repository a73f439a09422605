// What the oracle suite runs: requests of tests/oracle/text.py on stdin, results on stdout.
//   tokenize FILE   texts (u32 length, bytes) to ids (u32 count, i32 ...), then the decoded text
//                   (u32 length, bytes) and what a stream makes of it
//   render          lines of JSON [template, variables] to lines of JSON {"text": ...} or {"error":
//   ...} time FILE       MB/s of encode() on the text of stdin, the best of five
#include "egret/chat_template.h"
#include "egret/error.h"
#include "egret/tokenizer.h"

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

namespace {

void put(std::uint32_t value) {
  std::cout.write(reinterpret_cast<const char*>(&value), 4);
}
void put(const std::string& text) {
  put(static_cast<std::uint32_t>(text.size()));
  std::cout << text;
}

void tokenize(const char* file) {
  const auto tokenizer = egret::Tokenizer::load(file);
  std::uint32_t bytes = 0;
  while (std::cin.read(reinterpret_cast<char*>(&bytes), 4)) {
    std::string text(bytes, '\0');
    std::cin.read(text.data(), bytes);
    const auto ids = tokenizer.encode(text);
    put(static_cast<std::uint32_t>(ids.size()));
    for (const std::int32_t id : ids)
      put(static_cast<std::uint32_t>(id));
    put(tokenizer.decode(ids, false));
    put(tokenizer.decode(ids, true));
    egret::StreamingDetokenizer stream(tokenizer, false);
    std::string streamed;
    for (const std::int32_t id : ids)
      streamed += stream.push(id);
    put(streamed + stream.finish());
  }
}

void render() {
  for (std::string line; std::getline(std::cin, line);) {
    const auto request = nlohmann::ordered_json::parse(line);
    nlohmann::json answer;
    try {
      answer["text"] =
          egret::ChatTemplate::parse(request[0].get<std::string>()).render(request[1].dump());
    } catch (const egret::Error& error) {
      answer["error"] = error.what();
    }
    std::cout << answer.dump() << '\n';
  }
}

void time(const char* file) {
  const auto load = std::chrono::steady_clock::now();
  const auto tokenizer = egret::Tokenizer::load(file);
  const std::string text{std::istreambuf_iterator<char>(std::cin), {}};
  const auto begin = std::chrono::steady_clock::now();
  double best = 1e9;
  std::size_t ids = 0;
  for (int run = 0; run < 5; ++run) {
    const auto start = std::chrono::steady_clock::now();
    ids = tokenizer.encode(text).size();
    best = std::min(
        best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  std::printf("%.1f MB/s, %zu ids of %zu bytes, loaded in %.2f s\n",
              static_cast<double>(text.size()) / best / 1e6, ids, text.size(),
              std::chrono::duration<double>(begin - load).count());
}

} // namespace

int main(int argc, char** argv) {
  const std::string command = argc > 1 ? argv[1] : "";
  try {
    if (command == "tokenize" && argc > 2)
      tokenize(argv[2]);
    else if (command == "render")
      render();
    else if (command == "time" && argc > 2)
      time(argv[2]);
    else
      return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
