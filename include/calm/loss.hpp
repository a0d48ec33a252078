#pragma once
// Losses with their gradients, and BrierLM.

#include "calm/loss/brier.hpp"
#include "calm/loss/cross_entropy.hpp"
#include "calm/loss/energy_score.hpp"
#include "calm/loss/targets.hpp"
#include "calm/loss/variational.hpp"
