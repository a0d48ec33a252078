#pragma once
// Waits for what another thread or process does.

#include <chrono>
#include <thread>

namespace calm::test {

// Whether a condition comes true. It is asked often, and given up after a time that only a failure needs.
template <class Condition>
bool happens(Condition const& condition, std::chrono::seconds patience = std::chrono::seconds(60)) {
    auto const end = std::chrono::steady_clock::now() + patience;
    while (!condition()) {
        if (std::chrono::steady_clock::now() > end) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return true;
}

}  // namespace calm::test
