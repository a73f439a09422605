// What display() refuses, and what it says.
#include "egret/display.h"
#include "egret/functional.h"
#include "support/files.h"
#include "support/message_cases.h"

#include <gtest/gtest.h>

#include <filesystem>

namespace egret {
namespace {

TEST(DisplayErrors, NameWhatCannotBeShown) {
  test::TempFolder folder;
  const auto path = [&](const std::string& name) { return (folder / name).string(); };
  const Tensor x = ones({4, 8}).eval();
  const Tensor e = exp(x), y = e + 1, other = tanh(x);
  testing::expect_all(
      {{ErrorKind::File, "display: " + path("none/g.html"),
        [&] { display(y, {}, path("none/g.html")); }},
       {ErrorKind::File, "display: " + folder.path().string(),
        [&] { display(y, {}, folder.path().string()); }},
       {ErrorKind::Value, "display: `reddish` is no colour; #rrggbb",
        [&] {
          display(y, {{e, "reddish"}}, path("g.html"));
        }},
       {ErrorKind::Value, "display: `#12345g` is no colour",
        [&] {
          display(y, {{e, "#12345g"}}, path("g.html"));
        }},
       {ErrorKind::Value, "display: the tensor of mark 1 is no part of the graph",
        [&] {
          display(y, {{e, "red"}, {other, "red"}}, path("g.html"));
        }},
       {ErrorKind::Value, "display: no node of the graph is `%999`",
        [&] {
          display(y, {{"%999", "red"}}, path("g.html"));
        }},
       {ErrorKind::Value, "display: no node of the graph is `tanhh`",
        [&] {
          display(y, {{"tanhh", "red"}}, path("g.html"));
        }},
       {ErrorKind::Value, "display: a mark names no node", [] { const Mark mark("", "red"); }},
       {ErrorKind::State, "display: the values are known", [&] { display(x, {}, path("g.html")); }},
       {ErrorKind::State, "display: there is no tensor",
        [&] { display(std::vector<Tensor>{}, {}, path("g.html")); }}});
  EXPECT_FALSE(std::filesystem::exists(folder / "g.html"));
}

TEST(DisplayErrors, NameAPortInUse) {
  const Tensor y = tanh(ones({4}).eval());
  const ServedDisplay first(y);
  const std::string port = first.address().substr(17, first.address().find('/', 17) - 17);
  testing::expect_message(
      {ErrorKind::File, "view: port " + port + " of 127.0.0.1 cannot be had",
       [&] { const ServedDisplay second(y, {}, static_cast<std::uint16_t>(std::stoi(port))); }});
}

} // namespace
} // namespace egret
