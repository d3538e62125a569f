/* Touches what it takes, so that it really is taken. */
#include <stdlib.h>
#include <string.h>

int main(void) {
    for (;;) {
        char *taken = malloc(1 << 20);
        if (taken) memset(taken, 1, 1 << 20);
    }
}
