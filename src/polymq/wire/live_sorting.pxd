# The class says its types itself: nobody takes it from here.
