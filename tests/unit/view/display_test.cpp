// Graphs with the user's marks as pages: what is on them, that names stay text, and what is
// refused.
#include "egret/display.h"
#include "egret/functional.h"
#include "support/files.h"
#include "support/http_client.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <map>
#include <sstream>

namespace egret {
namespace {

using nlohmann::json;

/// The lines of the record within a page.
std::map<std::string, std::vector<json>> lines_of(const std::string& page) {
  std::map<std::string, std::vector<json>> lines;
  std::istringstream text(page.substr(page.find("{\"event\":\"record\"")));
  for (std::string line; std::getline(text, line) && line.starts_with('{');) {
    const json one = json::parse(line);
    lines[one["event"]].push_back(one);
  }
  return lines;
}

class Display : public ::testing::Test {
protected:
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::map<std::string, std::vector<json>> lines() const {
    return lines_of(test::read_file(folder_ / "g.html"));
  }
  /// Ops of the nodes of the i-th mark.
  std::vector<std::string> marked(std::size_t i) const {
    const auto all = lines();
    std::vector<std::string> ops;
    for (const std::size_t node : all.at("marks").at(0)["marks"].at(i)["nodes"])
      ops.push_back(all.at("node").at(node)["op"]);
    return ops;
  }
  test::TempFolder folder_;
  Tensor x_ = ones({4, 8}).eval();
};

TEST_F(Display, ShowsWhatReadingATensorWouldCompute) {
  const Tensor e = exp(x_), y = e / sum(e, -1, true);
  display(y, {{e, "orange", "may overflow"}, {"sum", "#7FB3ff"}, {x_, "grey"}}, path("g.html"));
  const auto all = lines();
  EXPECT_EQ(all.at("graph").size(), 1u);
  EXPECT_EQ(all.at("graph").at(0)["outputs"].size(), 1u);
  EXPECT_EQ(all.at("end").size(), 1u);
  EXPECT_EQ(marked(0), std::vector<std::string>{"exp"});
  EXPECT_EQ(marked(1), std::vector<std::string>{"sum"});
  EXPECT_EQ(marked(2), std::vector<std::string>{"input"});
  const json marks = all.at("marks").at(0)["marks"];
  EXPECT_EQ(marks[0]["note"], "may overflow");
  EXPECT_EQ(marks[0]["colour"], "#f0883e");
  EXPECT_EQ(marks[1]["colour"], "#7FB3ff");
  EXPECT_FALSE(y.is_materialized());
  display(std::vector<Tensor>{y, tanh(e)}, {}, path("g.html"));
  EXPECT_EQ(lines().at("graph").at(0)["outputs"].size(), 2u);
}

TEST_F(Display, ShowsAGraphByTheNodesOfItsText) {
  Graph cx;
  auto a = cx.tensor({3, 4}, DType::F32, "</script><script>alert(1)//");
  auto c = (exp(a) * 1).retrieve();
  display(cx, {{"exp", "red", "<img src=x onerror=alert(2)>"}}, path("g.html"));
  EXPECT_EQ(marked(0), std::vector<std::string>{"exp"});
  const std::string page = test::read_file(folder_ / "g.html");
  EXPECT_EQ(page.find("<script>alert"), std::string::npos);
  EXPECT_EQ(page.find("<img"), std::string::npos);
  EXPECT_EQ(lines().at("node").at(0)["name"], "</script><script>alert(1)//");
  const std::size_t before = lines().at("node").size();
  cx.compile(Generic{} | Fusion{}, &c);
  display(cx, {{"%0", "red"}}, path("g.html")); // as it now stands: without the product by one
  EXPECT_LT(lines().at("node").size(), before);
  EXPECT_EQ(marked(0), std::vector<std::string>{"input"});
}

TEST_F(Display, IsServedWhileItLives) {
  const Tensor y = tanh(x_);
  std::uint16_t port = 0;
  {
    const ServedDisplay served(y, {{"tanh", "blue"}});
    const std::string& address = served.address();
    ASSERT_TRUE(address.starts_with("http://127.0.0.1:")) << address;
    port = static_cast<std::uint16_t>(std::stoi(address.substr(17)));
    const std::string target = address.substr(address.find('/', 17));
    const std::string host = "Host: 127.0.0.1:" + std::to_string(port) + "\r\n\r\n";
    test::HttpClient client(port);
    client.send("GET " + target + " HTTP/1.1\r\n" + host);
    const test::HttpResponse page = client.response();
    EXPECT_EQ(page.status, 200);
    EXPECT_EQ(lines_of(page.body).at("marks").size(), 1u);
    test::HttpClient stranger(port);
    stranger.send("GET / HTTP/1.1\r\n" + host);
    EXPECT_EQ(stranger.response().status, 404);
  }
  EXPECT_ANY_THROW(test::HttpClient{port});
}

} // namespace
} // namespace egret
