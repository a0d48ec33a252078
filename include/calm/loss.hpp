#pragma once
/// \file
/// Losses with their gradients, and BrierLM.
/// \shows{tests/loss/brier_test.cpp,one_sequence_has_no_error}

#include "calm/loss/brier.hpp"
#include "calm/loss/cross_entropy.hpp"
#include "calm/loss/energy_score.hpp"
#include "calm/loss/targets.hpp"
#include "calm/loss/variational.hpp"
