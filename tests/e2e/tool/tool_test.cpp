// The egret command as people and scripts see it.
#include "egret/functional.h"
#include "egret/io.h"
#include "support/run_tool.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <set>

namespace egret {
namespace {

using test::egret_command;
using test::expect_contains;
using test::Ran;

TEST(Tool, HelpTeachesAndGoesToStdout) {
  Ran help = egret_command("--help");
  EXPECT_EQ(help.code, 0);
  for (const char* part : {"train", "ask", "run", "compile", "bisect", "bench", "info", "egraph",
                           "Exit code: 0 done, 1 failed, 2 wrong usage"})
    expect_contains(help.out, part);
  EXPECT_EQ(help.err, "");
  for (const char* command : {"train addition", "train digits", "train text", "ask", "generate",
                              "run", "bench", "info"}) {
    Ran of = egret_command(std::string(command) + " --help");
    EXPECT_EQ(of.code, 0) << command;
    expect_contains(of.out, "Usage");
  }
  EXPECT_EQ(egret_command("--version").out, "egret 0.1.0\n");
}

TEST(Tool, WrongUsageIsExitCode2AndSaysWhat) {
  for (const char* arguments : {"",
                                "frobnicate",
                                "train",
                                "train addition --steps no",
                                "train addition --steps 0",
                                "train addition --width 10 --heads 3",
                                "train addition --lr nan",
                                "train addition --lr 1e999",
                                "train addition --lr inf",
                                "train addition --seed -1",
                                "train addition --seed 18446744073709551616",
                                "train digits",
                                "compile --rule-seconds nan /dev/null",
                                "compile --rule-rows 99999999999999999999999 /dev/null",
                                "bench --budget inf x",
                                "bench --budget nan x",
                                "bench --seconds nan x",
                                "egraph run --time-limit nan /dev/null",
                                "egraph run --time-limit -1 /dev/null",
                                "egraph run --row-limit -1 /dev/null",
                                "egraph run --match-limit 1.5 /dev/null",
                                "egraph run --iteration-limit 99999999999999999999999 /dev/null",
                                "egraph run --threads -1 /dev/null",
                                "egraph run --max-functions x /dev/null",
                                "generate --temperature nan",
                                "train digits --data /no/such/folder",
                                "train text",
                                "train text --data /no/such/file",
                                "generate --temperature -1",
                                "generate --length x",
                                "bench no_such_workload",
                                "bench --device tpu",
                                "bench --effort much",
                                "run",
                                "run --frob"}) {
    Ran ran = egret_command(arguments);
    EXPECT_EQ(ran.code, 2) << arguments << "\n" << ran.err;
    EXPECT_NE(ran.err, "") << arguments;
    EXPECT_EQ(ran.out, "") << arguments;
  }
  EXPECT_EQ(egret_command("trian").err,
            "egret: there is no command 'egret trian' (did you mean train?); "
            "egret --help lists them\n");
  EXPECT_EQ(egret_command("nope").err,
            "egret: there is no command 'egret nope'; egret --help lists them\n");
  EXPECT_EQ(egret_command("egraph rn x").err,
            "egret: egraph: there is no subcommand rn (did you mean run?)\n");
  EXPECT_EQ(egret_command("train addition --lr nan").err,
            "egret: train addition: --lr: 'nan' is not a finite number above 0; "
            "egret train addition --help says how to use it\n");
  EXPECT_EQ(egret_command("train digits --dropout 7 --data /").err,
            "egret: train digits: --dropout: '7' is not a number from 0 to 0.95; "
            "egret train digits --help says how to use it\n");
  EXPECT_EQ(egret_command("run /dev/null --efort quick").err,
            "egret: run: there is no option --efort (did you mean --effort?); "
            "egret run --help says how to use it\n");
  EXPECT_EQ(egret_command("bench --frobnicate=3").err,
            "egret: bench: there is no option --frobnicate; egret bench --help says how to use "
            "it\n");
  EXPECT_EQ(egret_command("info now").err,
            "egret: info: 'now' is one argument too many; egret info --help says how to use it\n");
  EXPECT_EQ(egret_command("train").err,
            "egret: egret train is followed by one of addition, digits, text; "
            "egret train --help says what they do\n");
  EXPECT_EQ(egret_command("").err, "egret: a command is missing; egret --help lists them\n");
  EXPECT_EQ(egret_command("ask --device gpu").err,
            "egret: ask: --device: `gpu` is no device: cpu, c, cuda, or cuda:0, cuda:1 ... name "
            "one; egret ask --help says how to use it\n");
  expect_contains(egret_command("bench no_such_workload").err,
                  "no workload is named 'no_such_workload'; egret bench --list");
}

TEST(Tool, FailuresAreExitCode1AndOneLine) {
  Ran ran = egret_command("ask --model /no/such/file.safetensors 1+2");
  EXPECT_EQ(ran.code, 1);
  EXPECT_EQ(
      ran.err,
      "egret: /no/such/file.safetensors: there is no such file: egret train addition --out FILE "
      "makes one, --model FILE names it\n");
  EXPECT_EQ(ran.out, "");
  test::TempFolder folder;
  EXPECT_EQ(egret_command("train digits --data " + folder.path().string()).code, 1);
}

TEST(Tool, HelpOfAllHasTheCommandsBelowOthers) {
  const std::string help = egret_command("--help-all").out;
  for (const char* option : {"--keep-days", "--tensors", "--text"}) // of cache, egraph, eval
    expect_contains(help, option);
}

TEST(Tool, ResultsThatCannotBeWrittenAreAFailure) {
  if (!std::filesystem::exists("/dev/full"))
    GTEST_SKIP();
  for (const char* arguments : {"info", "--help", "--version", "--help-all", "train text --help",
                                "bench --list", "cache stats"})
    for (const char* where : {">/dev/full", ">&-"}) {
      const int status = std::system(fmt::format("EGRET_CACHE=/no/such {} {} {} 2>/dev/null",
                                                 EGRET_TEST_TOOL, arguments, where)
                                         .c_str());
      EXPECT_EQ(WEXITSTATUS(status), 1) << arguments << " " << where;
    }
}

// A file that is opened takes the smallest free number: it must not be that of stdout.
TEST(Tool, WhatIsPrintedIntoAClosedStdoutIsInNoOtherFile) {
  test::TempFolder folder;
  test::write_file(folder / "g.txt",
                   "%x: f32[2] = input \"x\"\n%y: f32[2] = exp(%x)\noutputs %y\n");
  const std::string f = folder.path().string();
  const int status = std::system(
      fmt::format("{0} compile {1}/g.txt --plan {1}/plan --json >&- 2>{1}/err", EGRET_TEST_TOOL, f)
          .c_str());
  EXPECT_EQ(WEXITSTATUS(status), 1);
  EXPECT_EQ(test::read_file(folder / "err").find("ops_recorded"), std::string::npos);
  EXPECT_EQ(test::read_file(folder / "plan").find("ops_recorded"), std::string::npos);
}

TEST(Tool, EveryVariableOfTheEnvironmentIsChecked) {
  for (const char* set :
       {"EGRET_DEBUG=abc", "EGRET_DEBUG=7", "EGRET_DEBUG_PASSES=extrakt",
        "EGRET_DEBUG_NODES=exponent", "EGRET_EFFORT=much", "EGRET_BUDGET=nan", "EGRET_FROZEN=yes",
        "EGRET_THREADS=0", "EGRET_OBJECTS_MB=x", "EGRET_CPU=fast", "EGRET_DEVICE=tpu",
        "EGRET_ENGINE=x", "EGRET_ALLOW=all", "EGRET_CHECKED=2", "EGRET_LIBRARIES=-",
        "EGRET_DETERMINISTIC=2", "EGRET_PLANS_MB=0"}) {
    const Ran ran = egret_command("cache stats", set);
    EXPECT_EQ(ran.code, 1) << set;
    const std::string name(set, std::string_view(set).find('='));
    expect_contains(ran.err, "egret: " + name + ": ");
  }
  EXPECT_EQ(egret_command("--version", "EGRET_DEBUG= EGRET_EFFORT=").code, 0);
}

TEST(Tool, EscapeCharactersOfFilesDoNotReachTheTerminal) {
  test::TempFolder folder;
  test::write_file(folder / "g.txt",
                   "%x: f32[2] = input \"a\x1b[31mb\"\n%y: f32[2] = exp(%x)\noutputs %y\n");
  const std::string graph = (folder / "g.txt").string();
  for (const std::string& arguments :
       {"run " + graph, "compile " + graph + " --report", "run " + graph + " -i z=/dev/null"}) {
    const Ran ran = egret_command(arguments);
    EXPECT_EQ((ran.out + ran.err).find('\x1b'), std::string::npos) << ran.out << ran.err;
  }
  expect_contains(egret_command("run " + graph).err, "a\\x1b[31mb");
}

TEST(Tool, ReadingEndsWhereAFileDoesNot) {
  const test::TempFolder folder;
  const std::string cache = "EGRET_CACHE=" + (folder / "cache").string();
  for (const char* arguments :
       {"run /dev/zero", "compile /dev/zero", "bisect /dev/zero", "cache import /dev/zero",
        "train text --data /dev/zero", "run /proc/self/mem"}) {
    const Ran ran = egret_command(arguments, cache);
    EXPECT_EQ(ran.code, 1) << arguments;
    expect_contains(ran.err, std::string_view(arguments).find("mem") == std::string_view::npos
                                 ? "/dev/zero: it has more than"
                                 : "/proc/self/mem: cannot read it");
  }
}

TEST(Tool, InfoAsTextAndJson) {
  expect_contains(egret_command("info").out, "device       cpu");
  auto json = nlohmann::json::parse(egret_command("info --json").out);
  EXPECT_EQ(json["device"], "cpu");
  EXPECT_GE(json["workers"].get<int>(), 1);
}

TEST(Tool, RunReadsAndWritesArrays) {
  test::TempFolder folder;
  test::write_file(folder / "g.txt", "%x: f32[2,3] = input \"x\"\n%y: f32[2,3] = mul(%x, %x)\n%s: "
                                     "f32[2] = sum(%y) axes=[1]\noutputs %y, %s\n");
  io::save_npy(folder / "x.npy", tensor({{1., 2., 3.}, {4., 5., 6.}}));
  std::string f = folder.path().string();
  Ran ran = egret_command("run " + f + "/g.txt --input x=" + f + "/x.npy --output y=" + f +
                          "/y.npy --json");
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(io::load_npy(folder / "y.npy").to_vector(), (std::vector<float>{1, 4, 9, 16, 25, 36}));
  EXPECT_EQ(ran.out, "{\"name\":\"s\",\"dtype\":\"f32\",\"shape\":[2],\"values\":[14.0,77.0]}\n");

  auto refused = [&](const std::string& arguments, int code, std::string_view part) {
    Ran bad = egret_command("run " + f + "/g.txt " + arguments);
    EXPECT_EQ(bad.code, code) << bad.err;
    expect_contains(bad.err, part);
  };
  refused("", 2, "input 'x' has no file: give --input x=FILE.npy (f32[2,3])");
  refused("--input z=" + f + "/x.npy", 2, "the graph has no input 'z'; its inputs: x");
  refused("--input x", 2, "--input takes NAME=FILE");
  refused("--input x=" + f + "/x.npy --output q=" + f + "/q.npy", 2,
          "the graph has no output 'q'; its outputs: y, s");
  io::save_npy(folder / "i.npy", arange(6).reshape({2, 3}));
  refused("--input x=" + f + "/i.npy", 1, "input 'x' is f32 in the graph and i64 in");
  io::save_npy(folder / "w.npy", ones({2, 2}));
  refused("--input x=" + f + "/w.npy", 1, "input 'x' is [2,3] in the graph and [2,2] in the file");
  test::write_file(folder / "g.txt", "%x: f32[2,3] = frob()\n");
  refused("", 1, "g.txt");
}

TEST(Tool, CompileSaysWhatEachPhaseDid) {
  test::TempFolder folder;
  const std::string f = folder.path().string();
  test::write_file(folder / "g.txt", R"(dim n in 1..64
%x: f32[n,16] = input "x"
%w: f32[16,8] = input "w"
%r: f32[n] = input "r"
%r1: f32[n,1] = reshape(%r)
%s: f32[n,16] = expand(%r1)
%y: f32[n,16] = mul(%x, %s)
%a1: f32[n,16,1] = reshape(%y)
%a: f32[n,16,8] = expand(%a1)
%b1: f32[1,16,8] = reshape(%w)
%b: f32[n,16,8] = expand(%b1)
%p: f32[n,16,8] = mul(%a, %b)
%z: f32[n,8] = sum(%p) axes=[1]
outputs %z
)");
  Ran text = egret_command("compile " + f + "/g.txt --allow reassociates --report");
  ASSERT_EQ(text.code, 0) << text.err;
  for (const char* part : {"rules: ", "e-classes", "e-nodes", "saturated",
                           "hoist-factor [hoisting, reassociates]", "saturate", "extract"})
    expect_contains(text.out, part);
  Ran json = egret_command("compile " + f + "/g.txt --allow reassociates --json");
  ASSERT_EQ(json.code, 0) << json.err;
  const auto report = nlohmann::json::parse(json.out);
  EXPECT_GT(report["saturation"]["nodes"], report["saturation"]["classes"]);
  EXPECT_EQ(report["saturation"]["saturated"], true);
  EXPECT_EQ(report["kernels"].size(), 1u);
  std::set<std::string> fired;
  for (const auto& rule : report["saturation"]["rules"])
    fired.insert(rule["rule"]);
  EXPECT_TRUE(fired.contains("hoist-factor"));
  // Without leave, and without effort, the sum keeps its order.
  Ran exact = egret_command("compile " + f + "/g.txt --report");
  EXPECT_EQ(exact.out.find("hoist-factor"), std::string::npos);
  Ran none = egret_command("compile " + f + "/g.txt --effort none --report");
  EXPECT_EQ(none.out.find("rules: "), std::string::npos);
  // The program replays to the same choice.
  Ran written = egret_command("compile " + f + "/g.txt --allow reassociates --program " + f +
                              "/p.egg --graph-out " + f + "/o.txt");
  ASSERT_EQ(written.code, 0) << written.err;
  expect_contains(test::read_file(folder / "o.txt"), "outputs");
  Ran replayed = egret_command("egraph run --tensors " + f + "/p.egg");
  ASSERT_EQ(replayed.code, 0) << replayed.err;
  expect_contains(replayed.out, "(Mul (View \"reshape[n,1]; expand[n,8]\" (Input 2 \"r\" 0 "
                                "\"f32[n]\")) (Sum 2 (Mul ");
}

TEST(Tool, MemoryLimitsAreKeptToldAndRefused) {
  test::TempFolder folder;
  const std::string f = folder.path().string();
  // Squares of squares, all of which are needed on the way back: eight matrices of 4 KB.
  std::string text = "%v0: f32[32,32] = input \"x\"\n", last = "v0";
  const auto square = [&](const std::string& a, const std::string& b, const std::string& to) {
    const auto line = [&](const std::string& name, const std::string& shape,
                          const std::string& what) {
      text += "%" + to + name + ": f32[" + shape + "] = " + what + "\n";
    };
    line("a", "32,32,1", "reshape(%" + a + ")");
    line("b", "1,32,32", "reshape(%" + b + ")");
    line("c", "32,32,32", "expand(%" + to + "a)");
    line("d", "32,32,32", "expand(%" + to + "b)");
    line("e", "32,32,32", "mul(%" + to + "c, %" + to + "d)");
    line("", "32,32", "sum(%" + to + "e) axes=[1]");
  };
  for (int i = 0; i < 8; ++i)
    square("v" + std::to_string(i), "v" + std::to_string(i), "v" + std::to_string(i + 1));
  last = "v8";
  for (int i = 7; i > 0; --i) {
    square(last, "v" + std::to_string(i), "w" + std::to_string(i));
    last = "w" + std::to_string(i);
  }
  test::write_file(folder / "g.txt", text + "outputs %" + last + "\n");
  const std::string graph = f + "/g.txt --effort none ";

  const auto plain = nlohmann::json::parse(egret_command("compile " + graph + "--json").out);
  EXPECT_FALSE(plain.contains("memory"));
  Ran limited = egret_command("compile " + graph + "--json --memory-limit 24KB");
  ASSERT_EQ(limited.code, 0) << limited.err;
  const auto report = nlohmann::json::parse(limited.out);
  const auto& memory = report["memory"];
  EXPECT_EQ(memory["limit_bytes"], 24 << 10);
  EXPECT_EQ(memory["bytes_without_limit"], plain["arena_bytes"]);
  EXPECT_EQ(memory["bytes"], report["arena_bytes"]);
  EXPECT_LE(memory["bytes"], 24 << 10);
  EXPECT_GT(memory["added_flops"], 0);
  EXPECT_GT(memory["added_bytes"], 0);
  ASSERT_FALSE(memory["again"].empty());
  std::size_t times = 0;
  for (const auto& again : memory["again"]) {
    times += again["times"].get<std::size_t>();
    EXPECT_EQ(again["nodes"], report["kernels"][again["kernel"].get<std::size_t>()]["nodes"]);
  }
  EXPECT_EQ(report["kernels"].size(), plain["kernels"].size() + times);
  expect_contains(egret_command("compile " + graph + "--report --memory-limit 24KB").out,
                  "memory limit 24576 bytes: ");

  io::save_npy(folder / "x.npy", arange(1024).reshape({32, 32}).to(DType::F32) * 1e-4);
  const std::string run = "run " + graph + "-i x=" + f + "/x.npy ";
  const Ran all = egret_command(run), some = egret_command(run + "--memory-limit 24KB");
  EXPECT_EQ(all.code, 0) << all.err;
  EXPECT_EQ(some.code, 0) << some.err;
  EXPECT_EQ(all.out, some.out);

  for (const char* nonsense : {"0", "-64MB", "lots", "64XB", "0KB"}) {
    Ran ran = egret_command("compile " + graph + "--memory-limit=" + nonsense);
    EXPECT_EQ(ran.code, 2) << nonsense;
    expect_contains(ran.err, "--memory-limit");
  }
  Ran refused = egret_command("compile " + graph + "--memory-limit 1KB");
  EXPECT_EQ(refused.code, 1);
  expect_contains(refused.err, "memory_limit: 1024 bytes do not hold the intermediate values; the "
                               "least that was found is ");
  Ran training = egret_command("train addition --steps 2 --batch 4 --held-out 10 --memory-limit "
                               "1KB --out " +
                               f + "/model");
  EXPECT_EQ(training.code, 1);
  expect_contains(training.err, "memory_limit: 1024 bytes");
}

TEST(Tool, PassesAreListedAndPrinted) {
  test::TempFolder folder;
  const std::string f = folder.path().string();
  test::write_file(folder / "g.txt",
                   "%x: f32[2] = input \"x\"\n%y: f32[2] = exp(%x)\noutputs %y\n");
  const Ran list = egret_command("compile --list-passes");
  ASSERT_EQ(list.code, 0) << list.err;
  const auto at = [&](std::string_view pass) { return list.out.find("\n" + std::string(pass)); };
  EXPECT_LT(at("normalize"), at("partition"));
  EXPECT_LT(at("partition"), at("plan-memory"));
  const Ran one =
      egret_command("compile " + f + "/g.txt --print-after views --print-after partition");
  ASSERT_EQ(one.code, 0) << one.err;
  expect_contains(one.out, "-- after partition\n0 map [2]: %1 exp\n");
  EXPECT_EQ(one.out.find("-- after normalize"), std::string::npos);
  const Ran changed = egret_command("compile " + f + "/g.txt --print-changed");
  ASSERT_EQ(changed.code, 0) << changed.err;
  expect_contains(changed.out, "-- after attention-delta: unchanged\n");
  expect_contains(changed.out, "-- after partition\n0 map");
  const Ran report = egret_command("compile " + f + "/g.txt --json");
  std::vector<std::string> passes;
  const auto json = nlohmann::json::parse(report.out);
  for (const auto& pass : json["passes"])
    passes.push_back(pass["pass"]);
  EXPECT_EQ(passes.front(), "simplify");
  EXPECT_EQ(passes.back(), "generate-code");
}

TEST(Tool, CompileRefusesWhatIsWrong) {
  test::TempFolder folder;
  const std::string f = folder.path().string();
  const auto refused = [&](const std::string& arguments, int code, std::string_view part) {
    Ran ran = egret_command("compile " + arguments);
    EXPECT_EQ(ran.code, code) << arguments << "\n" << ran.err;
    expect_contains(ran.err, part);
    EXPECT_EQ(ran.out, "");
  };
  test::write_file(folder / "bad.txt", "%x: f32[2] = input \"x\"\n%y: f32[2] = frob(%x)\n");
  refused(f + "/bad.txt", 1, "line 2, column 14: there is no operation `frob`");
  refused(f + "/none.txt", 2, "none.txt");
  test::write_file(folder / "g.txt",
                   "%x: f32[2] = input \"x\"\n%y: f32[2] = exp(%x)\noutputs %y\n");
  refused(f + "/g.txt --effort much", 2, "--effort");
  refused(f + "/g.txt --print-after partion", 2, "did you mean `partition`?");
  refused(f + "/g.txt --print-after batch --json", 2, "excludes --print-after");
  refused("", 2, "graph");
  refused(f + "/g.txt --allow everything", 2, "--allow");
  refused(f + "/g.txt --rule-seconds 0", 2, "--rule-seconds");
  refused(f + "/g.txt --group nothing", 1, "there is no group of rules `nothing`");
  test::write_file(folder / "r.egg", "; group mine: exact\n(ruleset mine)\n; x\n(rewrite (Exp x) "
                                     "(Sum x x) :ruleset mine :name \"e\")\n");
  refused(f + "/g.txt --rules " + f + "/r.egg", 1, "r.egg:4:");
  refused(f + "/g.txt --program " + f + "/no/such/folder.egg", 1, "cannot create a file here");
}

TEST(Tool, EgraphRunsProgramsAndWritesThem) {
  test::TempFolder folder;
  auto path = [&](const char* name) { return (folder / name).string(); };
  test::write_file(folder / "p.egg",
                   "(datatype M (Num i64) (Add M M)) (relation e (i64))\n"
                   "(rewrite (Add (Num a) (Num b)) (Num (+ a b)) :name \"fold\")\n"
                   "(let $t (Add (Num 1) (Num 2))) (run 3) (input e \"e.csv\")\n"
                   "(extract $t) (print-size e)\n");
  test::write_file(folder / "e.csv", "4\n5\n4\n");
  Ran ran = egret_command("egraph run " + path("p.egg") + " --stats --json " + path("o.json") +
                          " --dot " + path("o.dot") + " --facts " + path(""));
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(ran.out, "(Num 3)\n2\n");
  expect_contains(ran.err, "fold");
  nlohmann::json graph = nlohmann::json::parse(test::read_file(folder / "o.json"));
  EXPECT_FALSE(graph.at("nodes").empty());
  EXPECT_TRUE(graph.contains("class_data"));
  expect_contains(test::read_file(folder / "o.dot"), "digraph");

  Ran limited = egret_command("egraph run --row-limit 50 " + path("d.egg"));
  EXPECT_EQ(limited.code, 1); // there is no such file
  expect_contains(limited.err, "d.egg");
  test::write_file(folder / "d.egg", "(relation n (i64)) (rule ((n x)) ((n (+ x 1))) :name \"up\") "
                                     "(n 0) (run 1000000)");
  limited = egret_command("egraph run --row-limit 50 " + path("d.egg"));
  EXPECT_EQ(limited.code, 3);
  expect_contains(limited.out, "up");
}

TEST(Tool, EgraphFailuresShowTheLineAndAreExitCode1) {
  test::TempFolder folder;
  auto path = [&](const char* name) { return (folder / name).string(); };
  struct Case {
    const char *program, *facts, *message;
  };
  const std::string hostile(3000, '\t');
  for (const Case& c :
       {Case{"(datatype M (A))\n(rule ((A)) ((B)))", "", "p.egg:2:15: unknown function B"},
        Case{"(print-size)\n(check (= 1 2))", "", "p.egg:2:1: Check failed"},
        Case{"(run", "", ":1:1:"}, Case{"\xff\xfe(\0", "", ":1:"},
        Case{"(relation e (i64))\n(input e \"f.csv\")", "1\n9999999999999999999999\n", "f.csv:2: "},
        Case{"(relation e (i64 i64))\n(input e \"f.csv\")", "1\t2\n1\n",
             "expected 2 fields, found 1"},
        Case{"(relation e (f64))\n(input e \"f.csv\")", "\x01\x80\n", "expected f64"},
        Case{"(relation e (i64))\n(input e \"f.csv\")", hostile.c_str(), ""}}) {
    test::write_file(folder / "p.egg", c.program);
    test::write_file(folder / "f.csv", c.facts);
    Ran ran = egret_command("egraph run " + path("p.egg") + " --facts " + path(""));
    if (*c.message != 0) {
      EXPECT_EQ(ran.code, 1) << c.program;
      expect_contains(ran.err, c.message);
    } else {
      EXPECT_LE(ran.code, 1) << ran.err;
    }
  }
  EXPECT_EQ(egret_command("egraph run " + path("")).code, 1); // a folder
}

TEST(Tool, EgraphTakesTheOptionsOfEgglog) {
  test::TempFolder folder;
  auto path = [&](const char* name) { return (folder / name).string(); };
  test::write_file(folder / "a.egg",
                   "(datatype M (Num i64) (Add M M)) (function f (i64) i64 :merge new)"
                   "(let x (Add (Num 1) (Num 2))) (set (f 1) 8) (set (f 2) 8)");
  test::write_file(folder / "b.egg", "(Add x x) (run 1) (print-size Add)");
  // One e-graph for all programs, until one fails.
  Ran ran = egret_command("egraph run -j 2 --naive --no-decomp --report-level time-only " +
                          path("a.egg") + " " + path("b.egg"));
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(ran.out, "2\n");
  ran = egret_command("egraph run " + path("b.egg") + " " + path("a.egg"));
  EXPECT_EQ(ran.code, 1);
  expect_contains(ran.err, "b.egg:1:2: unknown command Add");
  EXPECT_EQ(
      egret_command("egraph run --mode no-messages " + path("a.egg") + " " + path("b.egg")).out,
      "");
  EXPECT_EQ(
      egret_command("egraph run --mode interactive " + path("a.egg") + " " + path("b.egg")).out,
      "(done)\n2\n(done)\n");
  ran = egret_command("egraph run --strict-mode " + path("a.egg"));
  EXPECT_EQ(ran.code, 1);
  expect_contains(ran.err, "the global x must be named $x");
  test::write_file(folder / "in", "(extract 1)\n(oops)\n(extract 2)\n");
  ran = egret_command("egraph run --mode interactive < " + path("in"));
  EXPECT_EQ(ran.out, "1\n(done)\n(error)\n2\n(done)\n");
  EXPECT_EQ(ran.code, 0);

  ran = egret_command("egraph run --save-report " + path("r.json") + " " + path("a.egg") + " " +
                      path("b.egg"));
  EXPECT_EQ(ran.code, 0) << ran.err;
  nlohmann::json report = nlohmann::json::parse(test::read_file(folder / "r.json"));
  for (const char* field : {"search_seconds", "apply_seconds", "rebuild_seconds", "rules", "rows"})
    EXPECT_TRUE(report.contains(field)) << field;

  for (const char* refused : {"--proofs", "--proof-testing", "--term-encoding", "--mode desugar",
                              "--report-level with-plan", "--max-functions few"}) {
    Ran wrong = egret_command("egraph run " + std::string(refused) + " " + path("a.egg"));
    EXPECT_EQ(wrong.code, 2) << refused;
    expect_contains(wrong.err, std::string(refused).substr(0, std::string(refused).find(' ')));
  }
}

TEST(Tool, EgraphExportsWhatTheOptionsSay) {
  test::TempFolder folder;
  auto path = [&](const char* name) { return (folder / name).string(); };
  std::string program = "(datatype M (Num i64) (Add M M)) (function f (i64) i64 :merge new)"
                        "(Add (Num 1) (Num 2)) (set (f 1) 8) (set (f 2) 8)";
  test::write_file(folder / "p.egg", program);
  auto graph = [&](const std::string& options, const char* file) {
    Ran ran = egret_command("egraph run --to-json " + options + " " + path("p.egg"));
    EXPECT_EQ(ran.code, 0) << ran.err;
    return nlohmann::json::parse(test::read_file(folder / file));
  };
  auto ops = [](const nlohmann::json& json) {
    std::multiset<std::string> out;
    for (const auto& [id, node] : json.at("nodes").items())
      out.insert(node.at("op").get<std::string>());
    return out;
  };
  using Ops = std::multiset<std::string>;
  EXPECT_EQ(ops(graph("", "p.json")), (Ops{"1", "2", "8", "Add", "Num", "Num", "f", "f"}));
  EXPECT_EQ(graph("", "p.json").at("class_data").size(), 6u);
  nlohmann::json split = graph("--serialize-split-primitive-outputs", "p-split.json");
  EXPECT_EQ(split.at("class_data").size(), 8u); // the two rows of f apart from 8
  EXPECT_EQ(ops(graph("--serialize-n-inline-leaves 1", "p.json")),
            (Ops{"8", "Add", "Num(1)", "Num(2)", "f(1)", "f(2)"}));
  EXPECT_EQ(ops(graph("--serialize-n-inline-leaves 2", "p.json")),
            (Ops{"8", "Add(Num(1), Num(2))", "f(1)", "f(2)"}));

  for (int i = 3; i < 60; ++i)
    program += "(Num " + std::to_string(i) + ")";
  test::write_file(folder / "p.egg", program);
  EXPECT_EQ(ops(graph("", "p.json")).count("Num"), 40u);
  EXPECT_EQ(ops(graph("--max-calls-per-function 50", "p.json")).count("Num"), 50u);
  Ran ran = egret_command("egraph run --to-dot --max-functions 1 --json " + path("all.json") + " " +
                          path("p.egg"));
  EXPECT_EQ(ran.code, 0) << ran.err;
  expect_contains(ran.err, "functions left out: Add, f; rows left out of: Num");
  nlohmann::json limited = nlohmann::json::parse(test::read_file(folder / "all.json"));
  EXPECT_EQ(ops(limited).count("Num"), 59u);
  expect_contains(test::read_file(folder / "p.dot"), "digraph");

  ran = egret_command("egraph run --to-svg " + path("p.egg"));
  if (ran.code == 0) {
    expect_contains(test::read_file(folder / "p.svg"), "<svg");
  } else {
    EXPECT_EQ(ran.code, 1);
    expect_contains(ran.err, "there is no program dot");
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "p.svg.dot.part"));
}

TEST(Tool, EgraphReplTakesLinesAndSurvivesErrors) {
  test::TempFolder folder;
  test::write_file(folder / "in",
                   "(datatype M (A) ; comment with ( and \"\n  (B))\n(let $x (A\n))\n"
                   "(oops)\n(union $x (B))\n(check (= (A) (B)))\n(check (= 1 2))\n"
                   "(print-size)\n(extract \"a ( b\")\n(extract 1");
  Ran ran = egret_command("egraph run < " + (folder / "in").string());
  EXPECT_EQ(ran.out, "((A 1)\n (B 1))\n\"a ( b\"\n");
  expect_contains(ran.err, "(input):5:2: unknown command oops");
  expect_contains(ran.err, "Check failed");
  expect_contains(ran.err, "not closed");
  EXPECT_EQ(ran.code, 1); // something failed, and nobody was there to see it
}

TEST(Tool, RunBindsSymbolicSizes) {
  test::TempFolder folder;
  test::write_file(
      folder / "g.txt",
      "dim n in 1..100\n%x: f32[n] = input \"x\"\n%y: f32[n] = add(%x, %x)\noutputs %y\n");
  io::save_npy(folder / "x.npy", tensor({1., 2., 3.}));
  std::string f = folder.path().string();
  Ran ran = egret_command("run " + f + "/g.txt -i x=" + f + "/x.npy --json");
  ASSERT_EQ(ran.code, 0) << ran.err;
  expect_contains(ran.out, "\"values\":[2.0,4.0,6.0]");
}

TEST(Tool, BenchListsAndPrintsEveryField) {
  std::string list = egret_command("bench --list").out;
  for (const char* name : {"matmul_f32_512", "softmax_f32_4096x4096", "gpt_tiny_train_f32",
                           "peak_fma_f32", "dispatch_f32_8"})
    expect_contains(list, name);
  Ran ran = egret_command("bench dispatch_f32_8 --json --seconds 0.01 --reps 3 --threads 1");
  ASSERT_EQ(ran.code, 0) << ran.err;
  auto json = nlohmann::json::parse(ran.out);
  for (const char* field : {"name", "device", "dtype", "ms_median", "ms_min", "reps", "flops",
                            "bytes", "kernels", "phases", "peak_bytes", "search_seconds",
                            "compile_seconds", "candidates", "verified", "max_error", "cache_hit"})
    EXPECT_TRUE(json.contains(field)) << field;
  EXPECT_EQ(json["verified"], true);
  EXPECT_EQ(json["kernels"], 1);
}

TEST(Tool, BenchTracesARun) {
  const test::TempFolder folder;
  const std::string traces = (folder / "traces").string();
  const std::string bench = "bench dispatch_f32_8 --json --seconds 0.01 --reps 3 --trace ";
  Ran ran = egret_command(bench + traces);
  ASSERT_EQ(ran.code, 0) << ran.err;
  const auto trace = nlohmann::json::parse(test::read_file(traces + "/dispatch_f32_8.json"));
  EXPECT_FALSE(trace["traceEvents"].empty());
  test::write_file(folder / "file", "");
  ran = egret_command(bench + (folder / "file").string());
  EXPECT_EQ(ran.code, 1);
  expect_contains(ran.err, (folder / "file/dispatch_f32_8.json").string());
  EXPECT_EQ(egret_command("bench --sweep rows --trace " + traces).code, 2);
}

TEST(Tool, BenchSaysWhereAWorkloadIsJudged) {
  const std::string list = egret_command("bench --list").out;
  for (const char* line :
       {"matmul_f32_256                        cpu ", "mnist_mlp_train_f32_b64               both",
        "llama3_8b_decode_bf16_ctx1024         cuda", "gpt2_124m_train_bf16_b32t1024         cuda"})
    expect_contains(list, line);
}

TEST(Tool, WithoutCudaADeviceThatIsAskedForIsAFailureThatSaysWhatIsMissing) {
  test::TempFolder folder;
  const std::string graph = (folder / "g.txt").string();
  test::write_file(graph, "%x: f32[2] = iota()\noutputs %x\n");
  for (const std::string& command : {std::string("bench dispatch_f32_8"), std::string("ask 1+2"),
                                     std::string("train addition --steps 1"), "run " + graph}) {
    Ran ran = egret_command(command + " --device cuda", "EGRET_CUDA_DRIVER=/nowhere/libcuda.so.1");
    EXPECT_EQ(ran.code, 1) << command;
    expect_contains(ran.err, "egret: cuda: no driver: /nowhere/libcuda.so.1");
    EXPECT_EQ(ran.out, "") << command;
  }
  EXPECT_EQ(egret_command("run " + graph + " --device cuda:x").code, 2);
  expect_contains(egret_command("ask --device tpu").err, "`tpu` is no device: cpu, c, cuda, or");
}

// The driver of tests has memory and a clock, and runs no kernel.
TEST(Tool, BenchFindsResultsThatNothingComputed) {
  test::TempFolder folder;
  const std::string fake = "EGRET_CUDA_DRIVER=" EGRET_FAKE_CUDA " EGRET_NVRTC=" EGRET_FAKE_CUDA
                           " EGRET_CUBLAS=/nowhere XDG_CACHE_HOME=" +
                           folder.path().string();
  Ran ran = egret_command("bench dispatch_f32_8 --json --device cuda --seconds 0.01", fake);
  EXPECT_EQ(ran.code, 1);
  auto json = nlohmann::json::parse(ran.out);
  EXPECT_EQ(json["device"], "cuda:0");
  EXPECT_EQ(json["verified"], false);
  EXPECT_EQ(json["kernels"], 1);
  EXPECT_GE(json["reps"].get<int>(), 20);
  EXPECT_GT(json["ms_min"].get<double>(), 0);
  EXPECT_FALSE(json.contains("of_cublas")) << "there is no cuBLAS";
  expect_contains(ran.err, "differs from the reference");

  ran = egret_command("bench exp_cos_f32_256m --device cuda", fake);
  EXPECT_EQ(ran.code, 1);
  expect_contains(ran.err, "exp_cos_f32_256m needs about 3.2 GB of memory on cuda:0, where 1.1 GB");
}

TEST(Tool, TrainsAsksAndAnswers) {
  test::TempFolder folder;
  std::string model = (folder / "m.safetensors").string();
  Ran train = egret_command("train addition --steps 4 --batch 8 --width 8 --heads 2 --layers 1 "
                            "--held-out 20 --evaluate-every 2 --compare --json --out " +
                            model);
  ASSERT_EQ(train.code, 0) << train.err;
  EXPECT_EQ(train.err.find('\033'), std::string::npos) << "colours without a terminal";
  EXPECT_EQ(train.err.find('\r'), std::string::npos) << "a moving line without a terminal";
  auto json = nlohmann::json::parse(train.out);
  EXPECT_EQ(json["held_out"], 20);
  EXPECT_LT(json["fused"]["kernels"].get<int>(), json["op_by_op"]["kernels"].get<int>());
  EXPECT_GT(json["searched"]["step_seconds"].get<double>(), 0);
  EXPECT_GT(json["operations"].get<int>(), 100);

  Ran ask = egret_command("ask --model " + model + " --json 12+30 ' 999 + 999 ='");
  ASSERT_EQ(ask.code, 0) << ask.err;
  std::istringstream lines(ask.out);
  std::string line;
  std::getline(lines, line);
  auto first = nlohmann::json::parse(line);
  EXPECT_EQ(first["a"], 12);
  EXPECT_EQ(first["b"], 30);
  EXPECT_EQ(first["correct"], first["answer"] == 42);
  Ran piped = egret_command("ask --model " + model, "printf '1+2\\n3+4\\n' |");
  EXPECT_EQ(piped.code, 0);
  EXPECT_EQ(std::count(piped.out.begin(), piped.out.end(), '\n'), 2);
  Ran wrong = egret_command("ask --model " + model + " 12*3");
  EXPECT_EQ(wrong.code, 1);
  expect_contains(wrong.err,
                  "'12*3' is no problem of this model: it adds two numbers from 0 to 999");
  io::save_safetensors(folder / "other", {{"x", ones({1})}});
  expect_contains(egret_command("ask --model " + (folder / "other").string() + " 1+2").err,
                  "no model that 'egret train addition' wrote");
}

TEST(Tool, EqualSeedsTrainEqualModels) {
  test::TempFolder folder;
  for (const char* name : {"a", "b"})
    ASSERT_EQ(egret_command("train addition --steps 3 --batch 8 --width 8 --heads 2 --layers 1 "
                            "--held-out 5 --out " +
                            (folder / name).string())
                  .code,
              0);
  EXPECT_EQ(test::read_file(folder / "a"), test::read_file(folder / "b"));
}

TEST(ToolBisect, NamesAWrongRuleAndCheckedRunsFindIt) {
  test::TempFolder folder;
  const auto graph = folder / "graph.txt", rules = folder / "mine.egg";
  test::write_file(graph, "%x: f32[6] = input \"x\"\n%e: f32[6] = exp(%x)\n"
                          "%y: f32[6] = mul(%e, %x)\noutputs %y\n");
  test::write_file(rules, "; group mine: exact\n(ruleset mine)\n; wrong\n"
                          "(rewrite (Exp x) x :ruleset mine :name \"exp-vanishes\")\n");
  const std::string bisect = "bisect " + graph.string();
  Ran right = egret_command(bisect);
  EXPECT_EQ(right.code, 0) << right.err;
  EXPECT_EQ(right.out, "all right: 1 outputs, 6 elements, 1 kernels\n");
  Ran wrong = egret_command(bisect + " --json --rules " + rules.string());
  EXPECT_EQ(wrong.code, 1) << wrong.err;
  const auto json = nlohmann::json::parse(wrong.out);
  EXPECT_EQ(json["culprit"], "rules");
  EXPECT_EQ(json["names"][0], "exp-vanishes (group mine)");
  const std::string compile = "compile " + graph.string() + " --checked";
  EXPECT_EQ(egret_command(compile).code, 0);
  Ran checked = egret_command(compile + " --rules " + rules.string());
  EXPECT_EQ(checked.code, 1);
  expect_contains(checked.err, "checked execution: output 0: element [");
  expect_contains(checked.err, "rule exp-vanishes (group mine) makes the result wrong");
  EXPECT_EQ(egret_command(bisect + " --input nothing=x.npy").code, 2);
  Ran steady = egret_command("compile " + graph.string() + " --steady nothing");
  EXPECT_EQ(steady.code, 2);
  expect_contains(steady.err, "--steady: the graph has no input 'nothing'");
}

} // namespace
} // namespace egret
