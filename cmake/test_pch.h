// What tests take, precompiled once (EGRET_PCH).
#pragma once
#include "pch.h"

#include <gtest/gtest.h>
