#pragma once
// A reference to something callable, so that a function that calls it need not be a template.

#include <memory>
#include <type_traits>
#include <utility>

namespace calm::detail {

template <class Signature> class function_ref;

// Refers to f, which must outlive it: a parameter type, not a member. As std::function_ref of C++26.
template <class Result, class... Arguments> class function_ref<Result(Arguments...)> {
public:
    template <class F>
    requires(!std::is_same_v<std::remove_cvref_t<F>, function_ref> &&
             std::is_invocable_r_v<Result, F const&, Arguments...>) function_ref(F const& f) :
        // NOLINT(google-explicit-constructor): a call passes f itself
        f_(std::addressof(f)),
        call_([](void const* of, Arguments... arguments) -> Result {
            return (*static_cast<F const*>(of))(std::forward<Arguments>(arguments)...);
        }) {}

    Result operator()(Arguments... arguments) const { return call_(f_, std::forward<Arguments>(arguments)...); }

private:
    void const* f_;
    Result (*call_)(void const*, Arguments...);
};

}  // namespace calm::detail
