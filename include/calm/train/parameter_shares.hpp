#pragma once
// Ranks share out the parameters of a model: each sums up the gradients of its share, updates it and keeps its moments
// (ZeRO, stage 1; Rajbhandari et al. 2020). Shares are whole ranges of block/ranges.hpp, so a number that is made of
// ranges has the same bits for any number of ranks.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include "calm/nn/param.hpp"
#include "calm/ranks/collective.hpp"
#include "calm/train/adamw.hpp"
#include "calm/train/block/ranges.hpp"
#include "calm/train/recipe.hpp"
#include "calm/train/shared_work.hpp"
#include "calm/train/throughput.hpp"
#include "calm/train/training_callbacks.hpp"

namespace calm {

// All parameters as one row of elements, in the order of visit, cut into a share for each rank. It keeps the addresses
// of the parameters, as the optimizer does. What a device sends to others, and gets, goes by the host's memory.
template <class Space> class parameter_shares final : public shared_work {
    using T = typename Space::compute;
    using Master = typename Space::master;
    using Backend = typename Space::backend;

public:
    // Context and ranks outlive it. So many elements of each share are on their way at once.
    parameter_shares(context<Backend> const& ctx, std::vector<any_parameter<Space>> const& parameters,
                     collective& ranks, index_t piece) :
        ctx_(ctx),
        ranks_(ranks), piece_(piece) {
        struct sized {
            index_t size;
        };
        std::vector<sized> sizes;
        for (auto const& p : parameters) {
            tensors_.push_back({p.value.data(), p.grad.data(), p.value.size(), elements_});
            sizes.push_back({p.value.size()});
            elements_ += p.value.size();
        }
        all_.assign(tensors_.size(), true);
        ranges_ = detail::ranges_of(sizes);
        cut();
        auto const count = static_cast<std::size_t>(ranks.ranks());
        sums_.resize(ranges_.size());
        sent_.resize(count * static_cast<std::size_t>(piece_));
        received_.resize(sent_.size());
    }
    // As many as fill some MB, or, of many ranks, make messages that are worth sending.
    parameter_shares(context<Backend> const& ctx, std::vector<any_parameter<Space>> const& parameters,
                     collective& ranks) :
        parameter_shares(ctx, parameters, ranks,
                         std::max<index_t>((index_t{1} << 20) / ranks.ranks(), detail::range_grain)) {}
    ~parameter_shares() override { ranks_.at_work = false; }

    [[nodiscard]] int rank() const override { return ranks_.rank(); }
    [[nodiscard]] int count() const override { return ranks_.ranks(); }
    [[nodiscard]] index_t micro_batches(index_t of_a_step) const override {
        index_t const each = of_a_step / count();
        require(count() == 1 || (each * count() == of_a_step && std::has_single_bit(static_cast<std::uint64_t>(each))),
                errc::usage, "training: expected a step of ", count(), " times 1, 2, 4, ... micro-batches for ",
                count(), " ranks, found ", of_a_step, " (--accumulation)");
        return each;
    }

    void begin_together(std::uint64_t seed, training_state const& state, training_recipe const& r,
                        index_t tokens) override {
        auto const word = [](auto number) { return std::bit_cast<std::uint64_t>(number); };
        require_alike({seed, word(state.step), word(state.updates), word(state.skipped), word(state.first_phase_steps),
                       word(r.steps), word(r.accumulation), word(r.seconds), word(r.rate), word(r.warmup),
                       word(r.optimizer.muon), word(tokens)});
        ranks_.at_work = true;
    }
    double agree_on_time(index_t steps_done) override {
        ranks_.steps_done = steps_done;
        return ranks_.broadcast(steady_seconds());
    }
    void add_up(std::span<std::byte> losses) override {
        auto const size = losses.size() / static_cast<std::size_t>(count());
        auto const first = static_cast<std::size_t>(rank()) * size;
        std::vector<std::byte> all(losses.size());
        auto const own = std::span(all).subspan(first, size);
        bring(own.data(), losses.data() + first, size);
        ranks_.all_gather(std::span<std::byte const>(own), std::span(all));
        put(losses.data(), all.data(), all.size());
        sum_gradients();
    }
    [[nodiscard]] part own(std::size_t i) const override {
        auto const& one = tensors_[i];
        auto const within = [&](index_t at) { return std::clamp<index_t>(at - one.place, 0, one.size); };
        return {within(cut_of(ranks_.rank())), within(cut_of(ranks_.rank() + 1))};
    }
    [[nodiscard]] std::size_t buffer_bytes() const override { return (sent_.size() + received_.size()) * sizeof(T); }

    // add_up() of the gradients.
    void sum_gradients() {
        in_pieces([&](auto const& pieces) {
            std::vector<std::span<T>> parts;
            auto room = std::span(sent_);
            for (auto const& piece : pieces) {
                auto const to = room.first(static_cast<std::size_t>(piece.end - piece.begin));
                room = room.subspan(to.size());
                walk(piece, [&](tensor_place const& one, index_t begin, index_t end, index_t at) {
                    auto const bytes = static_cast<std::size_t>(end - begin) * sizeof(T);
                    bring(to.data() + at, one.gradient + begin, bytes);
                    detail::memory_of<Backend>::clear(one.gradient + begin, bytes);
                });
                parts.push_back(to);
            }
            ranks_.reduce_scatter(std::span<std::span<T> const>(parts), std::span(received_));
            auto const number = static_cast<std::size_t>(ranks_.rank());
            walk(pieces[number], [&](tensor_place const& one, index_t begin, index_t end, index_t at) {
                put(one.gradient + begin, parts[number].data() + at, static_cast<std::size_t>(end - begin) * sizeof(T));
            });
        });
    }
    void gather_values() override {
        gather<Master>(
            true, all_, [&](std::size_t i) { return tensors_[i].value + own(i).begin; },
            [&](std::size_t i, index_t begin, void const* here, std::size_t bytes) {
                put(tensors_[i].value + begin, here, bytes);
            });
    }
    void gather_gradients(std::vector<bool> const& marked) override {
        gather<T>(
            true, marked, [&](std::size_t i) { return tensors_[i].gradient + own(i).begin; },
            [&](std::size_t i, index_t begin, void const* here, std::size_t bytes) {
                put(tensors_[i].gradient + begin, here, bytes);
            });
    }
    [[nodiscard]] index_t ranges() const override { return std::ssize(ranges_); }
    std::span<double const> squares_of_all(std::span<double const> own_ranges) override {
        ranks_.all_gather(own_ranges, std::span(sums_), first_range_);
        return sums_;
    }
    [[nodiscard]] std::size_t first_bad() const override {
        for (std::size_t r = 0; r < sums_.size(); ++r)
            if (!std::isfinite(sums_[r])) return static_cast<std::size_t>(ranges_[r].slot);
        return tensors_.size();
    }
    void gather_to_first(std::span<void const* const> from, std::span<void* const> to) override {
        gather<Master>(
            false, all_, [&](std::size_t i) { return static_cast<Master const*>(from[i]); },
            [&](std::size_t i, index_t begin, void const* here, std::size_t bytes) {
                std::memcpy(static_cast<Master*>(to[i]) + begin, here, bytes);
            });
    }
    // Throws errc::distributed where the ranks do not begin with the same values and these same numbers.
    void require_alike(std::vector<std::uint64_t> const& numbers) {
        std::uint64_t sum = static_cast<std::uint64_t>(elements_);
        auto const add = [&](std::uint64_t word) { sum = std::rotl(sum ^ word, 23) * 0x9e3779b97f4a7c15U; };
        for (auto const number : numbers) add(number);
        std::vector<typename Space::storage> values;
        for (auto const& one : tensors_) {
            values.resize(static_cast<std::size_t>(one.size));
            bring(values.data(), one.value, values.size() * sizeof(values[0]));
            for (auto const& value : values) {
                std::uint64_t word = 0;
                std::memcpy(&word, &value, sizeof value);
                add(word);
            }
        }
        std::vector<std::uint64_t> all(static_cast<std::size_t>(ranks_.ranks()));
        ranks_.all_gather(std::span<std::uint64_t const>(&sum, 1), std::span(all));
        for (std::size_t r = 1; r < all.size(); ++r)
            require(
                all[r] == all[0], errc::distributed, "rank ", r,
                " does not begin with the weights, the step and the recipe of rank 0: expected all ranks to run the "
                "same program with the same options and files");
    }

private:
    struct tensor_place {
        typename Space::storage* value;
        T* gradient;
        index_t size;
        index_t place;  // of its first element in the row
    };

    // Bytes of the executor's memory to the host's, and back.
    void bring(void* here, void const* there, std::size_t bytes) const {
        if (bytes == 0) return;
        if constexpr (host_memory<Backend>)
            std::memcpy(here, there, bytes);
        else
            ctx_.download(here, there, bytes);
    }
    void put(void* there, void const* here, std::size_t bytes) const {
        if (bytes == 0) return;
        if constexpr (host_memory<Backend>)
            std::memcpy(there, here, bytes);
        else
            ctx_.upload(there, here, bytes);
    }

    [[nodiscard]] index_t cut_of(int rank) const { return cuts_[static_cast<std::size_t>(rank)]; }

    // Shares of about the same size: a range belongs to the rank whose equal part it begins in.
    void cut() {
        index_t const R = ranks_.ranks();
        for (index_t r = 0, i = 0; r <= R; ++r) {
            auto const begin = [&] {
                auto const& range = ranges_[static_cast<std::size_t>(i)];
                return tensors_[static_cast<std::size_t>(range.slot)].place + range.begin;
            };
            while (i < std::ssize(ranges_) && (r == R || begin() * R < r * elements_)) ++i;
            first_range_.push_back(static_cast<std::size_t>(i));
            cuts_.push_back(i < std::ssize(ranges_) ? begin() : elements_);
        }
        index_t most = 0;
        for (int r = 0; r < ranks_.ranks(); ++r) most = std::max(most, cut_of(r + 1) - cut_of(r));
        piece_ = std::min(piece_, most);
        rounds_ = piece_ > 0 ? (most + piece_ - 1) / piece_ : 0;
    }
    // Calls f(pieces), a piece of each rank's share, until all were there.
    template <class F> void in_pieces(F const& f) {
        std::vector<part> pieces(static_cast<std::size_t>(ranks_.ranks()));
        for (index_t round = 0; round < rounds_; ++round) {
            for (int r = 0; r < ranks_.ranks(); ++r) {
                index_t const end = cut_of(r + 1);
                index_t const begin = std::min(cut_of(r) + round * piece_, end);
                pieces[static_cast<std::size_t>(r)] = {begin, std::min(begin + piece_, end)};
            }
            f(pieces);
        }
    }
    // Calls f(tensor, begin, end, at) for the parts of tensors in a piece; `at` is where they begin in it.
    template <class F> void walk(part const& piece, F const& f) const {
        for (index_t at = piece.begin; at < piece.end;) {
            auto const after = std::upper_bound(tensors_.begin(), tensors_.end(), at,
                                                [](index_t x, tensor_place const& one) { return x < one.place; });
            auto const& one = *std::prev(after);
            index_t const end = std::min(piece.end, one.place + one.size);
            f(one, at - one.place, end - one.place, at - piece.begin);
            at = end;
        }
    }
    // The number of a parameter.
    [[nodiscard]] std::size_t number_of(tensor_place const& one) const {
        return static_cast<std::size_t>(&one - tensors_.data());
    }
    // What each rank has of the parameters that are marked, in elements U, to all ranks or to the first. `from` tells
    // where this rank's share of parameter i is in the executor's memory, `keep` gets some elements of parameter i.
    template <class U, class From, class Keep>
    void gather(bool to_all, std::vector<bool> const& marked, From const& from, Keep const& keep) {
        static_assert(sizeof(U) == sizeof(T) && std::is_trivially_copyable_v<U>);
        auto const self = static_cast<std::size_t>(ranks_.rank());
        // Calls f(i, begin, bytes, place) for what a piece has of each, side by side; how many bytes they are together.
        auto const walk_marked = [&](part const& piece, auto const& f) {
            std::size_t place = 0;
            walk(piece, [&](tensor_place const& one, index_t begin, index_t end, index_t) {
                if (!marked[number_of(one)]) return;
                auto const size = static_cast<std::size_t>(end - begin) * sizeof(U);
                f(number_of(one), begin, size, place);
                place += size;
            });
            return place;
        };
        in_pieces([&](auto const& pieces) {
            auto* const out = reinterpret_cast<std::byte*>(sent_.data());
            auto const own_size =
                walk_marked(pieces[self], [&](std::size_t i, index_t begin, std::size_t size, std::size_t place) {
                    bring(out + place, from(i) + (begin - own(i).begin), size);
                });
            std::vector<collective::sent> send(pieces.size());
            std::vector<collective::received> places(pieces.size());
            auto room = std::as_writable_bytes(std::span(received_));
            for (std::size_t r = 0; r < pieces.size(); ++r) {
                if (r != self && (to_all || r == 0)) send[r] = {out, own_size};
                if (!to_all && self != 0) continue;
                auto const size = walk_marked(pieces[r], [](auto...) {});
                places[r] = r == self ? collective::received(out, own_size) : room.first(size);
                if (r != self) room = room.subspan(places[r].size());
            }
            ranks_.exchange(send, places);
            for (std::size_t r = 0; r < pieces.size(); ++r)
                if (!places[r].empty())
                    walk_marked(pieces[r], [&](std::size_t i, index_t begin, std::size_t size, std::size_t place) {
                        keep(i, begin, places[r].data() + place, size);
                    });
        });
    }

    context<Backend> const& ctx_;
    collective& ranks_;
    std::vector<tensor_place> tensors_;
    std::vector<bool> all_;  // of them
    std::vector<detail::parameter_range> ranges_;
    index_t elements_ = 0;
    std::vector<index_t> cuts_;             // (R + 1) in the row
    std::vector<std::size_t> first_range_;  // (R + 1) of each share
    index_t piece_;                         // elements of a share that go at once
    index_t rounds_ = 0;
    std::vector<double> sums_;  // of squares, of each range
    std::vector<T> sent_;       // (R, piece)
    std::vector<T> received_;
};

namespace detail {

// This rank's part of a run, or null: there is one rank.
template <class Space>
std::unique_ptr<shared_work> part_of(context<typename Space::backend> const& ctx,
                                     std::vector<any_parameter<Space>> const& parameters, collective* ranks) {
    if (ranks == nullptr || ranks->ranks() == 1) return nullptr;
    return std::make_unique<parameter_shares<Space>>(ctx, parameters, *ranks);
}
// Of whoever has no ranks: nothing of the above is compiled.
template <class Space>
std::unique_ptr<shared_work> part_of(context<typename Space::backend> const&, std::vector<any_parameter<Space>> const&,
                                     std::nullptr_t) {
    return nullptr;
}

}  // namespace detail

}  // namespace calm
