#pragma once
// What a rank of several does of a run of training.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "calm/tensor/extents.hpp"

namespace calm {

struct training_recipe;
struct training_state;

// One rank's part of a run: of each step some micro-batches, which are a subtree of the tree that their gradients add
// up in, and the update of a share of the parameters, whose moments it keeps. The bits are those of one rank. All ranks
// call the same verbs in the same order, and any of them throws where another rank failed. The steps of a run
// (training.hpp) and the optimizer know ranks by this alone, a null pointer where there is one; parameter_shares.hpp
// makes it of a collective, and is compiled for whoever has one.
class shared_work {
public:
    // Some elements of a parameter.
    struct part {
        index_t begin;  // the first of them
        index_t end;    // one past the last
    };

    shared_work() = default;
    virtual ~shared_work() = default;
    shared_work(shared_work const&) = delete;
    shared_work& operator=(shared_work const&) = delete;

    // This rank's number, in [0, count()).
    [[nodiscard]] virtual int rank() const = 0;
    // How many ranks there are.
    [[nodiscard]] virtual int count() const = 0;
    // The micro-batches of a step that a rank does. Throws errc::usage where they are no subtree.
    [[nodiscard]] virtual index_t micro_batches(index_t of_a_step) const = 0;

    // From here on, and as long as it lives, the ranks are at work and do the same. Throws errc::distributed where they
    // do not begin with the same values and these same numbers.
    virtual void begin_together(std::uint64_t seed, training_state const& state, training_recipe const& recipe,
                                index_t tokens) = 0;
    // Seconds of rank 0's clock, for all: what follows from them is the same on all ranks. Sentences then say that so
    // many steps are done.
    virtual double agree_on_time(index_t steps_done) = 0;
    // Gradients add up in groups of neighbouring parameters: (G + 1) the first of each group, and the number of all.
    [[nodiscard]] virtual std::vector<std::size_t> const& group_begins() const = 0;
    // The gradients of a group have what this rank's micro-batches give them, and are on their way to others from here
    // on, while those of other groups are still computed. All ranks have the groups in the same order.
    virtual void begin_adding_up(std::size_t group) = 0;
    // Brings on what is on its way, as far as that goes without waiting.
    virtual void bring_on() = 0;
    // Each rank has gradients of its own micro-batches, and in `losses`, of the executor's memory, which has R equal
    // parts, theirs. Then its share has the sums of all gradients, also of groups that have begun before, in the tree
    // of the ranks' numbers; elsewhere they are zero; and it has all losses.
    virtual void add_up(std::span<std::byte> losses) = 0;
    // Each rank has updated its share of the values; then all have all of them.
    virtual void gather_values() = 0;
    // Each rank has changed its share of the gradients; then all have all of those of the parameters that are marked.
    virtual void gather_gradients(std::vector<bool> const& marked) = 0;
    // Bytes of the executor's memory for what is on its way to and from others.
    [[nodiscard]] virtual std::size_t buffer_bytes() const = 0;

    // Of parameter i, what belongs to this rank's share, perhaps nothing.
    [[nodiscard]] virtual part own(std::size_t i) const = 0;
    // Ranges that all parameters have together.
    [[nodiscard]] virtual index_t ranges() const = 0;
    // The sums of the squares of the gradients in each range of all, in order, from those of this rank's ranges; valid
    // until they are asked for again.
    virtual std::span<double const> squares_of_all(std::span<double const> own_ranges) = 0;
    // After it, the number of the first parameter with a gradient that is not finite, or the number of all.
    [[nodiscard]] virtual std::size_t first_bad() const = 0;
    // Rank 0 gets what each rank has of something beside the parameters, in elements of their size: of parameter i,
    // own(i) of it lies at from[i] in the executor's memory, and at rank 0 there is place for all of it at to[i] in the
    // host's, or nullptr: it is left out.
    virtual void gather_to_first(std::span<void const* const> from, std::span<void* const> to) = 0;
};

}  // namespace calm
