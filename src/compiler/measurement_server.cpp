// The worker's side.
#include "backend/all/backends.h"
#include "compiler/measurement_bytes.h"
#include "compiler/measurement_process.h"
#include "support/fail.h"

#include <map>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

namespace egret::compiler {

int serve_measurements(int socket) {
  prctl(PR_SET_PDEATHSIG, SIGKILL); // nobody waits for a kernel whose caller is gone
  struct Opened {
    std::unique_ptr<backend::Device> device;
    std::unique_ptr<CandidateMeasurer> measurer;
  };
  std::map<std::string, Opened> devices;
  std::string message;
  while (receive_message(socket, message)) {
    MeasurementResult outcome;
    outcome.state = MeasurementResult::State::Rejected;
    outcome.reason = MeasurementResult::Reason::Device;
    try {
      std::string name;
      const CandidateMeasurement measurement = measurement_of_bytes(message, name);
      Opened& opened = devices[name];
      if (!opened.device)
        opened.device = backend::backends().open(backend::backends().parse(name, "worker"));
      if (!opened.measurer)
        opened.measurer = std::make_unique<CandidateMeasurer>(*opened.device);
      outcome = opened.measurer->run(measurement);
    } catch (const std::exception& error) {
      outcome.message = error.what();
    }
    if (!send_message(socket, to_bytes(outcome)))
      return 1;
    if (outcome.reason == MeasurementResult::Reason::Crash)
      _exit(3); // the device's context is lost, and with it all that its objects would do now
  }
  return 0;
}

} // namespace egret::compiler
