// Loops of lazy operations on one thread, on two threads and in two processes: steps a second of
// each, and what a step takes of a core.
//
//   build/release/bin/lazy_threads [SECONDS [NAME]]
//
// Each thread has tensors of its own. The three are measured in turns of a few milliseconds. Told
// is the median of the turns in which each thread had a core for itself, so that other work on the
// machine counts little. A thread that sleeps, such as for a lock, shows as a wait.
#include "egret/functional.h"
#include "egret/grad.h"
#include "egret/nn.h"
#include "egret/optim.h"

#include <fmt/format.h>

#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

using namespace egret;

namespace {

using Step = std::function<void()>;

struct Loop {
  const char* name;
  Step (*make)();
};

Step few_operations() {
  auto x = std::make_shared<Tensor>(zeros({64}).eval());
  return [x] { *x = (tanh(*x * 0.5 + 1) - 0.25).eval(); };
}

Step many_operations() {
  auto x = std::make_shared<Tensor>(zeros({16}).eval());
  return [x] {
    Tensor y = *x;
    for (int i = 0; i < 64; ++i)
      y = y * 0.5 + *x;
    y.eval();
  };
}

Step inference() {
  struct Net {
    Generator random{1};
    nn::Linear a{64, 64, random}, b{64, 10, random};
    Tensor x = ones({16, 64}).eval();
  };
  auto net = std::make_shared<Net>();
  return [net] {
    const NoGrad none;
    net->b(relu(net->a(net->x))).eval();
  };
}

struct Network {
  explicit Network(Generator random) : a(32, 32, random), b(32, 10, random) {}
  nn::Linear a, b;
  EGRET_FIELDS(a, b)
};

Step training() {
  struct Run {
    Network net{Generator(1)};
    optim::Sgd optimizer{nn::named_parameters(net), optim::SgdOptions{.lr = 0.01}};
    Tensor x = ones({16, 32}).eval(), y = zeros({16, 10}).eval();
  };
  auto run = std::make_shared<Run>();
  return [run] {
    run->optimizer.zero_grad();
    Tensor loss = mse_loss(run->net.b(relu(run->net.a(run->x))), run->y);
    loss.backward();
    run->optimizer.step();
    loss.item();
  };
}

const Loop kLoops[] = {{"few operations", few_operations},
                       {"64 multiply-adds", many_operations},
                       {"inference", inference},
                       {"training", training}};

constexpr double kTurn = 1e-3, kLead = 2e-4, kLate = 5e-5; // seconds

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Turn {
  double rate = 0, cpu = 0, waits = 0; // steps a second; of a step
  bool clean = true;                   // began in time, and had a core until it ended
};

Turn run(const Step& step, double begin, double time) {
  usleep(20); // so that the scheduler gives a whole slice
  while (seconds() < begin)
    __builtin_ia32_pause();
  rusage before{}, after{};
  getrusage(RUSAGE_THREAD, &before);
  timespec cpu_before{}, cpu_after{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu_before);
  const double began = seconds();
  double now = began, steps = 0;
  for (; now < begin + time; now = seconds(), steps += 4)
    for (int i = 0; i < 4; ++i)
      step();
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu_after);
  getrusage(RUSAGE_THREAD, &after);
  Turn turn;
  turn.rate = steps / (now - began);
  turn.cpu = (static_cast<double>(cpu_after.tv_sec - cpu_before.tv_sec) +
              1e-9 * static_cast<double>(cpu_after.tv_nsec - cpu_before.tv_nsec)) /
             steps;
  turn.waits = static_cast<double>(after.ru_nvcsw - before.ru_nvcsw) / steps;
  turn.clean = began - begin < kLate && after.ru_nivcsw == before.ru_nivcsw;
  return turn;
}

// The thread keeps to the first or the last core of those that the process may use: a scheduler may
// leave two threads on one core for long where others are busy.
void keep_to_core(bool last) {
  cpu_set_t all, one;
  if (sched_getaffinity(0, sizeof(all), &all) != 0)
    return;
  CPU_ZERO(&one);
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &all) && (last || CPU_COUNT(&one) == 0)) {
      CPU_ZERO(&one);
      CPU_SET(core, &one);
    }
  sched_setaffinity(0, sizeof(one), &one);
}

Turn together(const Turn& a, const Turn& b) {
  return {a.rate + b.rate, (a.cpu + b.cpu) / 2, (a.waits + b.waits) / 2, a.clean && b.clean};
}

// One who takes turns when told to, in this process or in another one.
struct Partner {
  std::atomic<int> asked{0}, done{0}; // turns; done: 1 is the warming up
  std::atomic<double> begin{0};
  std::atomic<bool> quit{false};
  Turn turn;

  void serve(const Loop& loop) {
    keep_to_core(true);
    const Step step = loop.make();
    run(step, seconds(), 0.2);
    done = 1;
    for (int next = 1; !quit; ++next) {
      while (asked < next && !quit)
        usleep(20);
      if (quit)
        return;
      turn = run(step, begin, kTurn);
      done = next + 1;
    }
  }
  Turn turn_with(const Step& own) {
    begin = seconds() + kLead;
    const int now = ++asked;
    const Turn mine = run(own, begin, kTurn);
    while (done < now + 1)
      usleep(20);
    return together(mine, turn);
  }
};

// Of turns that were clean.
struct Figures {
  std::vector<Turn> turns;
  std::size_t all = 0;
  void add(const Turn& turn) {
    ++all;
    if (turn.clean)
      turns.push_back(turn);
  }
  double median(double Turn::*field) {
    if (turns.empty())
      return 0;
    std::sort(turns.begin(), turns.end(),
              [&](const Turn& a, const Turn& b) { return a.*field < b.*field; });
    return turns[turns.size() / 2].*field;
  }
  std::string text(double alone) {
    return fmt::format("{:.2f}x, {:6.2f} us of a core, {:.3f} waits ({} of {} turns)",
                       median(&Turn::rate) / alone, 1e6 * median(&Turn::cpu), median(&Turn::waits),
                       turns.size(), all);
  }
};

void measure(const Loop& loop, double time) {
  auto* const process = new (mmap(nullptr, sizeof(Partner), PROT_READ | PROT_WRITE,
                                  MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Partner;
  const pid_t child = fork();
  if (child == 0) {
    process->serve(loop);
    _exit(0);
  }
  const Step own = loop.make();
  run(own, seconds(), 0.2);
  Partner partner;
  std::thread thread([&] { partner.serve(loop); });
  cpu_set_t before;
  sched_getaffinity(0, sizeof(before), &before);
  keep_to_core(false);
  while (process->done < 1 || partner.done < 1)
    usleep(1000);
  Figures single, threads, processes;
  for (const double end = seconds() + time; seconds() < end;) {
    single.add(run(own, seconds() + kLead, kTurn));
    threads.add(partner.turn_with(own));
    processes.add(process->turn_with(own));
  }
  partner.quit = process->quit = true;
  thread.join();
  sched_setaffinity(0, sizeof(before), &before);
  waitpid(child, nullptr, 0);
  const double alone = single.median(&Turn::rate);
  fmt::print("{}: {:.0f} steps/s\n  one thread     {}\n  two threads    {}\n  two processes  {}\n",
             loop.name, alone, single.text(alone), threads.text(alone), processes.text(alone));
}

} // namespace

int main(int argc, char** argv) {
  const double time = argc > 1 ? std::atof(argv[1]) : 2;
  for (const Loop& loop : kLoops)
    if (argc < 3 || std::string(loop.name).find(argv[2]) != std::string::npos)
      measure(loop, time);
}
