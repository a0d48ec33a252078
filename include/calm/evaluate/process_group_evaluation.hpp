#pragma once
// Distributes the pieces of a job: piece n belongs to rank n mod R.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "calm/evaluate/distributed_evaluation.hpp"
#include "calm/ranks/message.hpp"
#include "calm/ranks/patient_wait.hpp"
#include "calm/ranks/process_group.hpp"

namespace calm {

// distributed_evaluation on a process group, which outlives it.
class process_group_evaluation final : public distributed_evaluation {
public:
    explicit process_group_evaluation(process_group& ranks) : ranks_(ranks) {}  // all ranks of the group

    [[nodiscard]] bool is_own(index_t number) const override {
        ranks_.heartbeat();  // between pieces
        return number % ranks_.ranks() == ranks_.rank();
    }
    void heartbeat() override { ranks_.heartbeat(); }
    std::vector<std::byte> gather(std::span<std::byte const> own, std::uint64_t most) override {
        patient_wait const patience(ranks_);
        auto all = gather_messages(ranks_, own, most, most);
        return {all.all().begin(), all.all().end()};
    }
    void add_up(std::span<index_t> counts) override {
        patient_wait const patience(ranks_);
        std::vector<index_t> all(counts.size() * static_cast<std::size_t>(ranks_.ranks()));
        ranks_.all_gather(std::span<index_t const>(counts), std::span(all));
        constexpr index_t most = index_t{1} << 40;  // also the most in total
        std::ranges::fill(counts, 0);
        for (std::size_t i = 0; i < all.size(); ++i) {
            auto& sum = counts[i % counts.size()];
            require(all[i] >= 0 && all[i] <= most - sum, errc::distributed, "rank ", i / counts.size(),
                    ": expected a count from 0 to ", most - sum, ", found ", all[i],
                    "; do all ranks run the same program?");
            sum += all[i];
        }
    }
    void require_same_settings(std::span<setting const> settings) override {
        patient_wait const patience(ranks_);
        calm::require_same_settings(ranks_, settings);
    }

private:
    process_group& ranks_;
};

// distributed_evaluation of this rank, or null for one rank.
inline std::unique_ptr<distributed_evaluation> distributed_evaluation_of(process_group* ranks) {
    if (ranks == nullptr || ranks->ranks() == 1) return nullptr;
    return std::make_unique<process_group_evaluation>(*ranks);
}

}  // namespace calm
