#pragma once
// Copies in bf16 of matrices that many products read between two changes, as weights are within a step: a device that
// multiplies in bf16 rounds them once, in one launch, where each product would round them for itself.

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "calm/base/bf16.hpp"
#include "calm/tensor/copy.hpp"
#include "calm/tensor/kernel.hpp"

namespace calm {

namespace detail {

// A matrix without gaps, of whole groups of 16 bytes in bf16, and its copy.
struct copied_matrix {
    float const* from;
    bf16* to;
    index_t size;
};

// A block rounds a part of one of the matrices: part i begins at number begins[i] of matrix of[i].
struct round_copies_kernel {
    static constexpr int threads = 256;
    static constexpr index_t each = 8;       // numbers of a group
    static constexpr index_t part = 16'384;  // numbers, at most
    struct place {
        index_t matrix;
        index_t begin;
    };
    struct shared {};
    copied_matrix const* matrices;
    place const* places;

    template <class Block> CALM_HD void operator()(Block& b, shared&, index_t block) const {
        b.phase([&](int t) {
            auto const& matrix = matrices[places[block].matrix];
            index_t const begin = places[block].begin;
            index_t const end = begin + part < matrix.size ? begin + part : matrix.size;
            for (index_t i = begin + t * each; i < end; i += threads * each)
                store_group(matrix.to + i, load_group<float, each>(matrix.from + i));
        });
    }
};

}  // namespace detail

// The copies of those of some matrices of a device that products read; the matrices' memory outlives them. On the host
// there is nothing to copy.
template <class Backend> class bf16_copies {
public:
    // One more matrix (rows, columns) without gaps, before the first use. One whose rows are no whole 16 bytes in bf16
    // is left to its products.
    void add(float const* matrix, index_t rows, index_t columns) {
        if (columns % detail::round_copies_kernel::each == 0 && rows * columns > 0)
            all_.push_back({{matrix, nullptr, rows * columns}});
    }

    // While it lives, products of a context look here.
    class scope {
    public:
        scope(context<Backend>& ctx, bf16_copies const* copies) : ctx_(&ctx) { set(copies); }  // none where null
        scope(scope&& other) noexcept : ctx_(std::exchange(other.ctx_, nullptr)) {}            // ends later
        scope& operator=(scope&&) = delete;
        ~scope() {
            if (ctx_ != nullptr) set(nullptr);
        }

    private:
        context<Backend>* ctx_;
        void set([[maybe_unused]] bf16_copies const* copies) const {
            if constexpr (device_memory<Backend>) ctx_->copies = copies;
        }
    };

    // Copies the matrices that products have asked for before, also in a rehearsal, as they are now, where ctx
    // multiplies in bf16; its products take the copies until the scope ends. It ends before the matrices change.
    [[nodiscard]] scope use(context<Backend>& ctx) {
        if constexpr (device_memory<Backend>)
            if (ctx.products_in_bf16) {
                if (!is_sorted_) std::ranges::sort(all_, {}, [](auto const& one) { return one.matrix.from; });
                is_sorted_ = true;
                if (!ctx.rehearsing()) {
                    take();
                    if (blocks_ > 0) launch(ctx, blocks_, detail::round_copies_kernel{matrices_, places_});
                }
                return scope(ctx, this);
            }
        return scope(ctx, nullptr);
    }

    // The copy of the numbers that begin at x, of one of the matrices, at a multiple of 16 bytes; or null, and then
    // there is one at the next use.
    [[nodiscard]] bf16 const* of(float const* x) const {
        auto const behind = std::upper_bound(all_.begin(), all_.end(), x,
                                             [](float const* p, auto const& one) { return p < one.matrix.from; });
        if (behind == all_.begin()) return nullptr;
        auto const& one = behind[-1];
        index_t const at = x - one.matrix.from;
        if (at >= one.matrix.size || at % detail::round_copies_kernel::each != 0) return nullptr;
        one.is_asked_for = true;
        return one.matrix.to == nullptr ? nullptr : one.matrix.to + at;
    }

    // The memory of those that were asked for.
    [[nodiscard]] std::size_t bytes() const {
        std::size_t all = 0;
        for (auto const& one : all_)
            if (one.is_asked_for) all += static_cast<std::size_t>(one.matrix.size) * sizeof(bf16);
        return all;
    }

private:
    struct known {
        detail::copied_matrix matrix;
        mutable bool is_asked_for = false;
    };

    // Memory for those that were asked for since the last time.
    void take() {
        auto const is_new = [](known const& one) { return one.is_asked_for && one.matrix.to == nullptr; };
        if (std::ranges::none_of(all_, is_new)) return;
        std::vector<detail::copied_matrix> matrices;
        std::vector<detail::round_copies_kernel::place> places;
        for (auto& one : all_) {
            if (!one.is_asked_for) continue;
            if (is_new(one)) one.matrix.to = memory_.template take<bf16>(extents<dyn>(one.matrix.size)).data();
            for (index_t begin = 0; begin < one.matrix.size; begin += detail::round_copies_kernel::part)
                places.push_back({std::ssize(matrices), begin});
            matrices.push_back(one.matrix);
        }
        matrices_ = table_of(memory_, matrices);
        places_ = table_of(memory_, places);
        blocks_ = std::ssize(places);
    }

    std::vector<known> all_;
    bool is_sorted_ = false;  // by address
    arena<Backend> memory_{"weights in bf16"};
    detail::copied_matrix const* matrices_ = nullptr;             // those with copies, on the executor
    detail::round_copies_kernel::place const* places_ = nullptr;  // of the blocks
    index_t blocks_ = 0;
};

}  // namespace calm
