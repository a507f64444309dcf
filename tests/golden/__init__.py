"""Files of each version that Volley has written, and today's code that reads them."""
