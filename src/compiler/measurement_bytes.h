// Measurements and their results as bytes, and how they go over a socket: eight bytes with the
// length, then the message.
#pragma once

#include "compiler/candidate_measurement.h"

#include <chrono>
#include <string>
#include <string_view>

namespace egret::compiler {

std::string to_bytes(const CandidateMeasurement& measurement, const std::string& device);
/// Error(File) when the bytes are none. `device` gets the device's name.
CandidateMeasurement measurement_of_bytes(std::string_view bytes, std::string& device);
std::string to_bytes(const MeasurementResult& outcome);
MeasurementResult result_of_bytes(std::string_view bytes);

/// What a measurement's inputs and right results depend on, and what its timed arguments do:
/// measurements with equal keys may share them.
std::string check_key(const CandidateMeasurement& measurement);
std::string timing_key(const CandidateMeasurement& measurement);

using Clock = std::chrono::steady_clock;
enum class Exchange : std::uint8_t { Done, Late, Closed };
/// Sends a message and waits for the answer.
Exchange exchange(int socket, const std::string& message, std::string& answer,
                  Clock::time_point deadline);
/// Both wait as long as it takes; false when the other side has gone.
bool send_message(int socket, const std::string& message);
bool receive_message(int socket, std::string& message);

} // namespace egret::compiler
