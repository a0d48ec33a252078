#pragma once
// How many requests each address may send.

#include <algorithm>
#include <cstddef>
#include <string>
#include <unordered_map>

namespace calm::apps {

// Allows each address `per_second` requests on average and as many again at once (token bucket); 0 allows all. Holds at
// most `most_addresses`; then it forgets those that may send their whole burst anyway, and refuses new ones if there
// are none. Takes the time in seconds, which must not decrease.
class request_rate {
public:
    static constexpr std::size_t most_addresses = 65536;

    explicit request_rate(double per_second) : per_second_(per_second) {}

    // Counts a request; false if it is one too many.
    bool allows(std::string const& address, double now) {
        if (per_second_ <= 0) return true;
        if (addresses_.size() >= most_addresses && addresses_.count(address) == 0) {
            std::erase_if(addresses_, [&](auto const& one) { return left(one.second, now) >= burst(); });
            if (addresses_.size() >= most_addresses) return false;
        }
        auto& bucket = addresses_.try_emplace(address, state{burst(), now}).first->second;
        bucket = {left(bucket, now), now};
        if (bucket.left < 1) return false;
        --bucket.left;
        return true;
    }

private:
    struct state {
        double left;  // requests that may come at once
        double at;    // this time
    };
    [[nodiscard]] double burst() const { return std::max(1.0, 2 * per_second_); }
    [[nodiscard]] double left(state const& bucket, double now) const {
        return std::min(burst(), bucket.left + (now - bucket.at) * per_second_);
    }

    double per_second_;
    std::unordered_map<std::string, state> addresses_;
};

}  // namespace calm::apps
