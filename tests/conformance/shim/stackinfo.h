/* How stacks look on the machines that we run on. */
#include <elf.h>
#define _STACK_GROWS_DOWN 1
#define DEFAULT_STACK_PERMS (PF_R | PF_W)
#define stackinfo_get_sp() __builtin_frame_address(0)
