#pragma once
// Waits for ranks whose part of a job takes an unknown time.

#include <utility>

#include "calm/ranks/collective.hpp"

namespace calm {

// While it lives, the timeout does not apply to ranks that give signs of life.
class patient_wait {
public:
    // The collective outlives it.
    explicit patient_wait(collective& ranks) :
        ranks_(ranks), at_work_(std::exchange(ranks.at_work, false)),
        keeps_in_touch_(std::exchange(ranks.keeps_in_touch, true)) {}
    ~patient_wait() {
        ranks_.at_work = at_work_;
        ranks_.keeps_in_touch = keeps_in_touch_;
    }
    patient_wait(patient_wait const&) = delete;
    patient_wait& operator=(patient_wait const&) = delete;

private:
    collective& ranks_;
    bool at_work_;
    bool keeps_in_touch_;
};

}  // namespace calm
