// `--record` and `egret view`: the page, what it refuses, and who may read it over HTTP.
#include "support/http_client.h"
#include "support/run_tool.h"

#include <arpa/inet.h>
#include <array>
#include <csignal>
#include <fmt/format.h>
#include <memory>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace egret {
namespace {

using test::egret_command;
using test::expect_contains;
using test::Ran;

class View : public ::testing::Test {
protected:
  void SetUp() override {
    test::write_file(folder_ / "g.txt", "%x: f32[2] = input \"</script><script>alert(1)//\"\n"
                                        "%y: f32[2] = exp(%x)\noutputs %y\n");
  }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  Ran run(const std::string& arguments) const {
    return egret_command(arguments, "EGRET_CACHE=off");
  }
  void make_record() const {
    const Ran ran = run("compile " + path("g.txt") + " --record " + path("g.jsonl"));
    ASSERT_EQ(ran.code, 0) << ran.err;
  }
  test::TempFolder folder_;
};

TEST_F(View, IsOnePageInWhichNamesAreText) {
  make_record();
  const Ran ran = run("view " + path("g.jsonl") + " --out " + path("g.html"));
  ASSERT_EQ(ran.code, 0) << ran.err;
  const std::string page = test::read_file(folder_ / "g.html");
  expect_contains(page, "default-src 'none'; script-src 'sha256-");
  expect_contains(page, "\\u003c/script>\\u003cscript>alert(1)//");
  EXPECT_EQ(page.find("<script>alert"), std::string::npos);
  EXPECT_EQ(page.find("RECORD_GOES_HERE"), std::string::npos);
  for (const char* loads : {"src=\"", "href=\"", "@import", "url("})
    EXPECT_EQ(page.substr(0, page.find("<script")).find(loads), std::string::npos) << loads;
}

TEST_F(View, RefusesWhatIsNoRecord) {
  make_record();
  const std::string record = test::read_file(folder_ / "g.jsonl");
  const auto refused = [&](const std::string& text, const std::string& why) {
    test::write_file(folder_ / "r.jsonl", text);
    const Ran ran = run("view " + path("r.jsonl") + " --out " + path("r.html"));
    EXPECT_EQ(ran.code, 1) << why;
    expect_contains(ran.err, path("r.jsonl") + ": " + why);
    EXPECT_FALSE(std::filesystem::exists(folder_ / "r.html"));
  };
  refused("", "no record of egret: it is empty");
  refused("{}\n", "no record of egret: its first line");
  refused("hello\n", "no record of egret: its first line");
  refused("[1]\n" + record, "no record of egret: its first line");
  refused(R"({"event":"record","format":"egret-record","version":99})"
          "\n",
          "a record of version 99; this egret reads version 1");
  const std::size_t second = record.find('\n') + 1;
  refused(record.substr(0, second) + "{\"event\":\n" + record.substr(second), "line 2 is no JSON");
  test::write_file(folder_ / "large.jsonl", record);
  std::filesystem::resize_file(folder_ / "large.jsonl", (std::uintmax_t{256} << 20) + 1);
  const Ran large = run("view " + path("large.jsonl") + " --out " + path("r.html"));
  EXPECT_EQ(large.code, 1);
  expect_contains(large.err, path("large.jsonl") + ": it has more than 268435456 bytes");
}

TEST_F(View, ShowsARecordThatIsCutShort) {
  make_record();
  const std::string record = test::read_file(folder_ / "g.jsonl");
  test::write_file(folder_ / "g.jsonl", record.substr(0, record.size() / 2));
  const Ran ran = run("view " + path("g.jsonl") + " --out " + path("g.html"));
  EXPECT_EQ(ran.code, 0) << ran.err;
}

TEST_F(View, ARunHasTheTimeOfEachLaunch) {
  test::write_file(folder_ / "s.txt", "%n: f32[1000] = iota\n%e: f32[1000] = exp(%n)\n"
                                      "%s: f32 = sum(%e) axes=[0]\noutputs %s\n");
  const Ran ran = run("run " + path("s.txt") + " --record " + path("s.jsonl"));
  ASSERT_EQ(ran.code, 0) << ran.err;
  const std::string record = test::read_file(folder_ / "s.jsonl");
  expect_contains(record, R"({"event":"launch","program":0,"launch":0,"begin":)");
  expect_contains(record, R"("line":2)");
}

TEST_F(View, DrawsTheGraphsOfARecord) {
  make_record();
  const auto drawn = [&](const std::string& what, const std::string& name) {
    const Ran ran = run("view " + path("g.jsonl") + " --draw " + what + " --out " + path(name));
    EXPECT_EQ(ran.code, 0) << ran.err;
    return test::read_file(folder_ / name);
  };
  const std::string svg = drawn("graph", "g.svg");
  EXPECT_TRUE(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\"")) << svg;
  expect_contains(svg, "&lt;script&gt;alert(1)//");
  EXPECT_EQ(svg.find("<script"), std::string::npos);
  expect_contains(drawn("launches", "l.dot"), "digraph egret {");
  expect_contains(drawn("egraph", "e.json"), "\"root_eclasses\"");
  expect_contains(drawn("egraph", "e.svg"), "class 1");
  expect_contains(drawn("tree:0", "t.json"), "\"nodes\"");
  const auto refused = [&](const std::string& arguments, int code, const std::string& why) {
    const Ran ran = run("view " + arguments);
    EXPECT_EQ(ran.code, code) << ran.err;
    expect_contains(ran.err, why);
  };
  const std::string record = path("g.jsonl");
  refused(record + " --draw graph", 2, "view --draw: wants --out NAME.svg");
  refused(record + " --draw graph --out " + path("g.png"), 2, "wants --out NAME.svg");
  refused(record + " --draw pie --out " + path("g.svg"), 1, "pie is none of graph, graph:N");
  refused(record + " --draw graph:99 --out " + path("g.svg"), 1, "has no graph 99");
  refused(record + " --draw graph --program 5 --out " + path("g.svg"), 1, "no program 5");
  refused(record + " --draw graph --out " + path("none/g.svg"), 1, path("none/g.svg"));
  refused(path("g.txt") + " --draw graph --out " + path("g.svg"), 1, "no record of egret");
  refused("", 2, "wants a record, or a program with --run");
  refused(path("missing.jsonl") + " --out " + path("m.html"), 1, path("missing.jsonl"));
}

TEST_F(View, RunsAProgramAndShowsWhatItDid) {
  test::write_file(folder_ / "s.txt", "%n: f32[1000] = iota\n%e: f32[1000] = exp(%n)\n"
                                      "%s: f32 = sum(%e) axes=[0]\noutputs %s\n");
  const Ran ran = run(fmt::format("view --out {} --run {} -- run {}", path("p.html"),
                                  EGRET_TEST_TOOL, path("s.txt")));
  ASSERT_EQ(ran.code, 0) << ran.err;
  expect_contains(ran.out, "%s = inf"); // its output is its own
  const std::string page = test::read_file(folder_ / "p.html");
  expect_contains(page, R"({"event":"launch","program":0,"launch":0,"begin":)");
  expect_contains(page, R"({"event":"memory","device":"cpu","at":)");
  expect_contains(page, R"({"event":"copy","what":"from cpu","bytes":4,)");
  expect_contains(page, R"({"event":"end")");

  const Ran failing = run(fmt::format("view --out {} --run {} -- run {} --json --seed x",
                                      path("f.html"), EGRET_TEST_TOOL, path("s.txt")));
  EXPECT_EQ(failing.code, 1);
  expect_contains(failing.err, "ended with exit code 2");
  expect_contains(failing.err, "left no record");
  const Ran other = run("view --run /bin/true");
  EXPECT_EQ(other.code, 1);
  expect_contains(other.err, "/bin/true left no record: it does not use egret");
  const Ran none = run("view --run " + path("nothing-here"));
  EXPECT_EQ(none.code, 1);
  expect_contains(none.err, "nothing-here cannot be run: No such file or directory");
}

TEST_F(View, ARecordThatTheEnvironmentAsksForIsWrittenOrRefused) {
  test::write_file(folder_ / "s.txt", "%n: f32[10] = iota\noutputs %n\n");
  const Ran ran =
      egret_command("run " + path("s.txt"), "EGRET_CACHE=off EGRET_RECORD=" + path("e.jsonl"));
  EXPECT_EQ(ran.code, 0) << ran.err;
  expect_contains(test::read_file(folder_ / "e.jsonl"), R"({"event":"end")");
  const Ran refused =
      egret_command("run " + path("s.txt"), "EGRET_CACHE=off EGRET_RECORD=" + path("none/e.jsonl"));
  EXPECT_EQ(refused.code, 1);
  expect_contains(refused.err, path("none/e.jsonl"));
}

TEST_F(View, NamesARecordThatCannotBeWritten) {
  const Ran ran = run("compile " + path("g.txt") + " --record " + path("none/g.jsonl"));
  EXPECT_EQ(ran.code, 1);
  expect_contains(ran.err, path("none/g.jsonl"));
}

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

TEST_F(View, NamesAPortInUse) {
  make_record();
  const int taken = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = loopback(0);
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(taken, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(taken, 1), 0);
  ASSERT_EQ(::getsockname(taken, reinterpret_cast<sockaddr*>(&address), &size), 0);
  const int port = ntohs(address.sin_port);
  const Ran ran = run(fmt::format("view {} --port {}", path("g.jsonl"), port));
  EXPECT_EQ(ran.code, 1);
  expect_contains(ran.err, fmt::format("port {} of 127.0.0.1 cannot be had", port));
  ::close(taken);
}

/// `egret view` as a process, which ends with this.
class Server {
public:
  explicit Server(const std::string& record) {
    std::array<int, 2> ends = {};
    EXPECT_EQ(::pipe(ends.data()), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(ends[1], STDOUT_FILENO);
      ::close(ends[0]);
      ::execl(EGRET_TEST_TOOL, "egret", "view", record.c_str(), nullptr);
      ::_exit(127);
    }
    ::close(ends[1]);
    for (char c = 0; ::read(ends[0], &c, 1) == 1 && c != '\n';)
      address += c;
    ::close(ends[0]);
    const std::size_t colon = address.rfind(':'), slash = address.find('/', colon);
    port = static_cast<std::uint16_t>(std::stoi(address.substr(colon + 1)));
    path = address.substr(slash);
  }
  ~Server() { end(); }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  int end() {
    if (pid_ <= 0)
      return -1;
    ::kill(pid_, SIGTERM);
    int status = 0;
    ::waitpid(std::exchange(pid_, 0), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  /// The whole answer to a request.
  std::string ask(const std::string& request) const {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in at = loopback(port);
    EXPECT_EQ(::connect(fd, reinterpret_cast<const sockaddr*>(&at), sizeof at), 0);
    EXPECT_EQ(::send(fd, request.data(), request.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(request.size()));
    std::string answer;
    std::array<char, 4096> part = {};
    for (ssize_t got = 0; (got = ::recv(fd, part.data(), part.size(), 0)) > 0;)
      answer.append(part.data(), static_cast<std::size_t>(got));
    ::close(fd);
    return answer;
  }
  std::string get(const std::string& target, const std::string& method = "GET") const {
    return ask(fmt::format("{} {} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\n\r\n", method, target, port));
  }

  std::string address, path;
  std::uint16_t port = 0;

private:
  pid_t pid_ = 0;
};

TEST_F(View, IsServedToWhoKnowsTheAddress) {
  make_record();
  Server server(path("g.jsonl"));
  ASSERT_TRUE(server.address.starts_with("http://127.0.0.1:")) << server.address;
  ASSERT_EQ(server.path.size(), 34u) << server.path;
  const std::string page = server.get(server.path);
  EXPECT_TRUE(page.starts_with("HTTP/1.1 200")) << page.substr(0, 300);
  for (const char* header : {"Content-Security-Policy: frame-ancestors 'none'",
                             "X-Content-Type-Options: nosniff", "Cache-Control: no-store"})
    expect_contains(page, header);
  EXPECT_TRUE(page.ends_with("</html>\n"));
  std::string other = server.path;
  other[1] = other[1] == 'a' ? 'b' : 'a';
  for (const std::string& target : {std::string("/"), other, server.path + "x", server.path + "?",
                                    server.path.substr(0, 33), std::string("/../../etc/passwd")})
    EXPECT_TRUE(server.get(target).starts_with("HTTP/1.1 404")) << target;
  EXPECT_TRUE(server.get(server.path, "DELETE").starts_with("HTTP/1.1 405"));
  // A name that somebody else's page made to mean this machine.
  EXPECT_TRUE(server
                  .ask(fmt::format("GET {} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nHost: evil.example"
                                   "\r\n\r\n",
                                   server.path, server.port))
                  .starts_with("HTTP/1.1 400"));
  EXPECT_TRUE(server.ask("GET " + server.path + " HTTP/1.1\r\nHost: evil.example\r\n\r\n")
                  .starts_with("HTTP/1.1 421"));
  const std::string head = server.get(server.path, "HEAD");
  EXPECT_TRUE(head.starts_with("HTTP/1.1 200") && head.ends_with("\r\n\r\n")) << head;
  server.ask("\xff\xfe garbage\r\n\r\n");
  server.ask("GET /" + std::string(1 << 16, 'a') + " HTTP/1.1\r\n\r\n");
  EXPECT_TRUE(server.get(server.path).starts_with("HTTP/1.1 200")); // it is still there
  { // As many connections as it has at once, which send nothing; then they end.
    std::vector<std::unique_ptr<test::HttpClient>> idle;
    for (int i = 0; i < 64; ++i)
      idle.push_back(std::make_unique<test::HttpClient>(server.port));
    EXPECT_TRUE(test::HttpClient(server.port).ended()) << "one too many is closed at once";
  }
  while (!server.get(server.path).starts_with("HTTP/1.1 200")) {
  }
  EXPECT_EQ(server.end(), 0);
}

} // namespace
} // namespace egret
