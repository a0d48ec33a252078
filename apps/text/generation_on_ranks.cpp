#include "text/generation_on_ranks.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

#include "calm/ranks/detail/patient_wait.hpp"
#include "run/ranks.hpp"

namespace calm::apps {

namespace {

using prompts_span = std::span<std::vector<token_id> const>;

// First prompt of rank r's part.
std::size_t begin_of(int rank, std::size_t prompts, process_group const& ranks) {
    auto const R = static_cast<std::size_t>(ranks.ranks());
    return (prompts * static_cast<std::size_t>(rank) + R - 1) / R;
}

// Generates a lot of prompts, known to each rank, on all ranks.
std::vector<generation_result> written_by_all(process_group& ranks, prompt_lot const& lot, message_limits const& most,
                                              write_with_callback const& write, token_callback const& on_tokens) {
    auto const begin = [&](int rank) { return begin_of(rank, lot.prompts.size(), ranks); };
    auto const own =
        prompts_span(lot.prompts).subspan(begin(ranks.rank()), begin(ranks.rank() + 1) - begin(ranks.rank()));
    std::vector<generation_result> texts;
    if (!own.empty())
        texts = write(own, lot.first + static_cast<std::uint32_t>(begin(ranks.rank())),
                      [&](std::size_t prompt, std::span<token_id const> fresh) {
                          ranks.heartbeat();
                          on_tokens(prompt, fresh);
                      });
    patient_wait const patience(ranks);
    auto const all = gather_messages(ranks, message_of(texts), most_bytes_of_texts(most));
    std::vector<generation_result> together;
    for (int r = 0; r < ranks.ranks(); ++r) {
        auto part = texts_in(all.read(r, "the texts"), begin(r + 1) - begin(r), most);
        together.insert(together.end(), std::move_iterator(part.begin()), std::move_iterator(part.end()));
    }
    return together;
}

// Broadcasts rank 0's next lot; an empty one ends the work.
prompt_lot bring(process_group& ranks, prompt_lot const& lot, message_limits const& most) {
    auto const message = broadcast_message(ranks, message_of(lot), most_bytes_of_prompts(most));
    return prompt_lot_in({message, "the prompts of rank 0"}, most);
}

}  // namespace

write_texts without_callback(write_with_callback const& write) {
    return [&write](prompts_span prompts, std::uint32_t first) {
        return write(prompts, first, [](std::size_t, std::span<token_id const>) {});
    };
}

int on_all_ranks(message_limits const& most, write_with_callback const& write,
                 std::function<int(write_with_callback const&)> const& program) {
    auto* const all = ranks();
    if (all == nullptr) return program(write);
    if (!all->is_first()) {
        for (;;) {
            auto const lot = bring(*all, {}, most);
            if (lot.prompts.empty()) return 0;
            written_by_all(*all, lot, most, write, [](std::size_t, std::span<token_id const>) {});
        }
    }
    int const status = program([&](prompts_span prompts, std::uint32_t first, token_callback const& on_tokens) {
        std::vector<generation_result> texts;
        for (std::size_t at = 0; at < prompts.size(); at += prompt_lot::most) {
            auto const some = prompts.subspan(at, std::min(prompt_lot::most, prompts.size() - at));
            prompt_lot const lot{{some.begin(), some.end()}, first + static_cast<std::uint32_t>(at)};
            auto made = written_by_all(
                *all, bring(*all, lot, most), most, write,
                [&](std::size_t prompt, std::span<token_id const> fresh) { on_tokens(at + prompt, fresh); });
            texts.insert(texts.end(), std::move_iterator(made.begin()), std::move_iterator(made.end()));
        }
        return texts;
    });
    bring(*all, {}, most);
    return status;
}

}  // namespace calm::apps
