#pragma once
// Waits for ranks whose part of a job takes an unknown time.

#include <utility>

#include "calm/ranks/process_group.hpp"

namespace calm {

// While it lives, the timeout does not apply to ranks that give signs of life.
class patient_wait {
public:
    // The process group outlives it.
    explicit patient_wait(process_group& ranks) :
        ranks_(ranks), at_work_(std::exchange(ranks.timeout_active, false)),
        had_heartbeat_(std::exchange(ranks.has_heartbeat, true)) {}
    ~patient_wait() {
        ranks_.timeout_active = at_work_;
        ranks_.has_heartbeat = had_heartbeat_;
    }
    patient_wait(patient_wait const&) = delete;
    patient_wait& operator=(patient_wait const&) = delete;

private:
    process_group& ranks_;
    bool at_work_;
    bool had_heartbeat_;
};

}  // namespace calm
