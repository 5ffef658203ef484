// Storage that a kernel does not name, and a build therefore leaves out: sources compile without it.
#pragma once
#ifndef X
#define X float
#endif
#ifndef Y
#define Y float
#endif
#ifndef Z
#define Z float
#endif
#ifndef V
#define V float
#endif
#ifndef L
#define L float
#endif
