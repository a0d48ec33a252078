#pragma once
// Copies in bf16 of matrices that many products read between two changes, as weights are within a step. A device that
// multiplies in bf16 rounds them once, in one launch, where each product would round them for itself. Where they are
// rounded at random all of those products have to read the same copy: so the cpu makes them too.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "calm/base/bf16.hpp"
#include "calm/base/random.hpp"
#include "calm/tensor/copy.hpp"
#include "calm/tensor/for_each.hpp"
#include "calm/tensor/group.hpp"
#include "calm/tensor/kernel.hpp"

namespace calm {

namespace detail {

inline constexpr index_t copied_at_once = 8;  // numbers: a group, 16 bytes in bf16

// To nearest, as whoever stores a number as bf16 does.
struct round_to_nearest {
    CALM_HD group<float, copied_at_once> operator()(group<float, copied_at_once> const& x, std::uint64_t) const {
        return x;
    }
};
// At random: the numbers of a group by 16 bits each of the block of that number.
struct round_at_random {
    key draws;
    CALM_HD group<float, copied_at_once> operator()(group<float, copied_at_once> x, std::uint64_t number) const {
        philox_block const random = philox(draws, number);
        for (int l = 0; l < static_cast<int>(copied_at_once); ++l)
            x.lane[l] = bf16::at_random(x.lane[l], random.v[l / 2] >> (l % 2 * 16));
        return x;
    }
};

// A matrix without gaps, of whole groups, and its copy, which stores bf16, or float that are such numbers.
template <class Number> struct copied_matrix {
    float const* from;
    Number* to;
    index_t size;
    std::uint64_t groups_before;  // in the matrices before it

    // Copies the group that begins at number i.
    template <class Rounding> CALM_HD void copy_group(index_t i, Rounding const& rounded) const {
        auto const number = groups_before + static_cast<std::uint64_t>(i / copied_at_once);
        store_group(to + i, rounded(load_group<float, copied_at_once>(from + i), number));
    }
};

// What a block copies: from number `begin` of a matrix on, at most so many.
struct copied_part {
    static constexpr index_t size = 16'384;
    index_t matrix;
    index_t begin;
};

template <class Rounding> struct round_copies_kernel {
    static constexpr int threads = 256;
    struct shared {};
    copied_matrix<bf16> const* matrices;
    copied_part const* parts;
    Rounding rounded;

    template <class Block> CALM_HD void operator()(Block& b, shared&, index_t block) const {
        b.phase([&](int t) {
            auto const& matrix = matrices[parts[block].matrix];
            index_t const begin = parts[block].begin;
            index_t const end = begin + copied_part::size < matrix.size ? begin + copied_part::size : matrix.size;
            for (index_t i = begin + t * copied_at_once; i < end; i += threads * copied_at_once)
                matrix.copy_group(i, rounded);
        });
    }
};

// Whether products of float are in bf16 (bf16_products.hpp).
template <class Backend> bool multiplies_in_bf16(context<Backend> const& ctx) {
    if constexpr (device_memory<Backend>)
        return ctx.products_in_bf16;
    else
        return ctx.products != nullptr;
}

}  // namespace detail

// The copies of those of some matrices that products read; the matrices' memory outlives them. On the host they are
// numbers of bf16 stored as float, and where weights are rounded to nearest there are none: each product does it.
template <class Backend> class bf16_copies {
public:
    using number = std::conditional_t<device_memory<Backend>, bf16, float>;  // of a copy

    // One more matrix (rows, columns) without gaps, before the first use. One whose rows are no whole 16 bytes in bf16
    // is left to its products, which round to nearest. What random bits a matrix gets follows from those before it.
    void add(float const* matrix, index_t rows, index_t columns) {
        if (columns % detail::copied_at_once != 0 || rows * columns <= 0) return;
        all_.push_back({{matrix, nullptr, rows * columns, groups_}});
        groups_ += static_cast<std::uint64_t>(rows * columns / detail::copied_at_once);
    }

    // While it lives, products of a context look here.
    class scope {
    public:
        // There, until it ends; none where null.
        scope(context<Backend>& ctx, bf16_copies const* copies) : ctx_(&ctx) { ctx.copies = copies; }
        scope(scope&& other) noexcept : ctx_(std::exchange(other.ctx_, nullptr)) {}  // ends later
        scope& operator=(scope&&) = delete;
        ~scope() {
            if (ctx_ != nullptr) ctx_->copies = nullptr;
        }

    private:
        context<Backend>* ctx_;
    };

    // Copies the matrices that products have asked for before, also in a rehearsal, as they are now, where ctx
    // multiplies in bf16; its products take the copies until the scope ends. It ends before the matrices change.
    // At random a copy is a function of the matrices, and of the seed and the step of ctx.
    [[nodiscard]] scope use(context<Backend>& ctx, weight_rounding rounding = weight_rounding::nearest) {
        bool const at_random = rounding == weight_rounding::stochastic;
        if (!detail::multiplies_in_bf16(ctx) || (host_memory<Backend> && !at_random)) return scope(ctx, nullptr);
        if (!is_sorted_) std::ranges::sort(all_, {}, [](auto const& one) { return one.matrix.from; });
        is_sorted_ = true;
        if (!ctx.rehearsing()) {
            take();
            if (at_random)
                copy(ctx, detail::round_at_random{ctx.random(stream::rounding)});
            else if constexpr (device_memory<Backend>)
                copy(ctx, detail::round_to_nearest{});
        }
        return scope(ctx, this);
    }

    // The copy of the numbers that begin at x, of one of the matrices, at a multiple of 16 bytes in bf16; or null, and
    // then there is one at the next use.
    [[nodiscard]] number const* of(float const* x) const {
        auto const behind = std::upper_bound(all_.begin(), all_.end(), x,
                                             [](float const* p, auto const& one) { return p < one.matrix.from; });
        if (behind == all_.begin()) return nullptr;
        auto const& one = behind[-1];
        index_t const at = x - one.matrix.from;
        if (at >= one.matrix.size || at % detail::copied_at_once != 0) return nullptr;
        one.is_asked_for = true;
        return one.matrix.to == nullptr ? nullptr : one.matrix.to + at;
    }

    // The memory of those that were asked for.
    [[nodiscard]] std::size_t bytes() const {
        std::size_t all = 0;
        for (auto const& one : all_)
            if (one.is_asked_for) all += static_cast<std::size_t>(one.matrix.size) * sizeof(number);
        return all;
    }

private:
    struct known {
        detail::copied_matrix<number> matrix;
        mutable bool is_asked_for = false;
    };

    // Memory for those that were asked for since the last time.
    void take() {
        bool has_more = false;
        for (auto& one : all_) {
            if (!one.is_asked_for || one.matrix.to != nullptr) continue;
            one.matrix.to = memory_.template take<number>(extents<dyn>(one.matrix.size)).data();
            has_more = true;
        }
        if constexpr (device_memory<Backend>)
            if (has_more) share_out();
    }
    // Among blocks.
    void share_out() {
        std::vector<detail::copied_matrix<number>> matrices;
        std::vector<detail::copied_part> parts;
        for (auto const& one : all_) {
            if (one.matrix.to == nullptr) continue;
            for (index_t begin = 0; begin < one.matrix.size; begin += detail::copied_part::size)
                parts.push_back({std::ssize(matrices), begin});
            matrices.push_back(one.matrix);
        }
        matrices_ = table_of(memory_, matrices);
        parts_ = table_of(memory_, parts);
        blocks_ = std::ssize(parts);
    }

    template <class Rounding> void copy(context<Backend> const& ctx, Rounding const& rounded) const {
        if constexpr (device_memory<Backend>) {
            if (blocks_ > 0) launch(ctx, blocks_, detail::round_copies_kernel<Rounding>{matrices_, parts_, rounded});
        } else {
            for (auto const& one : all_)
                if (one.matrix.to != nullptr)
                    for_each(ctx, one.matrix.size / detail::copied_at_once, [matrix = one.matrix, rounded](index_t i) {
                        matrix.copy_group(i * detail::copied_at_once, rounded);
                    });
        }
    }

    std::vector<known> all_;
    std::uint64_t groups_ = 0;  // of all
    bool is_sorted_ = false;    // by address
    arena<Backend> memory_{"weights in bf16"};
    // Of a device, on it.
    detail::copied_matrix<number> const* matrices_ = nullptr;  // those with copies
    detail::copied_part const* parts_ = nullptr;               // of the blocks
    index_t blocks_ = 0;
};

}  // namespace calm
